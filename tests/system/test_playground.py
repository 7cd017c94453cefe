"""The playground in a real browser: every task, the keyboard alone, tokens, bad photos, and a narrow or dark screen."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from baked_tasks import HEIGHT, MARKUP, TASKS, WIDTH
from browser import accessibility_report, chromium
from PIL import Image
from server_process import ServerProcess

from savedmodel_bakery.serving.access.tokens import Role, Token, format_token, hash_secret

SECRET = "right-token"
NAME = "it's <b>a photo.png"
ANSWERED = "Answered in"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def served(task_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a model per task; classify has two versions."""
    log = tmp_path_factory.mktemp("playground") / "log"
    with ServerProcess(f"--model_config_file={task_models}", "--enable_playground", log=log) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(task_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose callers need a token."""
    folder = tmp_path_factory.mktemp("guarded")
    token = Token("right", hash_secret(SECRET), frozenset({Role.PREDICT}), frozenset({"classify"}))
    (folder / "tokens.toml").write_text(format_token(token))
    flags = (
        "--model_name=classify",
        f"--model_base_path={task_models.parent / 'classify'}",
        f"--auth_tokens_file={folder / 'tokens.toml'}",
        "--enable_playground",
    )
    with ServerProcess(*flags, log=folder / "log") as running:
        yield running


@pytest.fixture(scope="module")
def photo(task_models: Path) -> bytes:
    return (task_models.parent / "photo.png").read_bytes()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open the page of a server; its console must stay free of errors but those of requests that fail."""
    contexts, messages = [], []

    def open_page(server: ServerProcess, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1000, "height": 800}, **options})
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("console", lambda message: messages.append(message.text) if message.type == "error" else None)
        # Otherwise Playwright asks for this event only when a test expects it, and does not wait until it gets it.
        page.on("filechooser", lambda _chooser: None)
        page.goto(f"{server.url}/")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [] == [text for text in messages if "Failed to load resource" not in text]


def send(page: Any, content: bytes, name: str = NAME) -> Any:
    """Choose a file; return its result when it is complete."""
    before = page.locator("#results article").count()
    page.set_input_files("#files", {"name": name, "mimeType": "image/png", "buffer": content})
    page.wait_for_function("count => document.querySelectorAll('#results article').length > count", arg=before)
    article = page.locator("#results article").first
    article.locator("details").last.wait_for()
    return article


def choose(page: Any, model: str) -> None:
    page.locator("#models tr").first.wait_for()
    page.select_option("#model", model)


EXPECTED = {
    "classify": r"red\s+9\d\.\d %\s+green\s+\d\.\d %",
    "binary": r"red\s+9\d\.\d %\s+green\s+\d\.\d %",
    "multilabel": r"red\s+8\d\.\d %",
    "embed": r"3 numbers, length 0\.\d+",
    "regress": r"green\s+3\d\.\d+\s+red\s+19\d\.\d+",
    "detect": r"(green|red)\s+90\.0 %\s+(green|red)\s+90\.0 %",
    "segment": r"red\s+7\d\.\d %\s+background\s+1\d\.\d %\s+green\s+1\d\.\d %",
}


@pytest.mark.parametrize("task", TASKS)
def test_a_photo_has_a_result_for_every_task(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes, task: str
) -> None:
    page = open_page(served)
    choose(page, task)
    article = send(page, photo)
    text = article.inner_text()
    assert NAME == article.locator("h3").inner_text()
    assert re.search(EXPECTED[task], text), text
    assert ANSWERED in text
    article.get_by_alt_text("What the model saw").wait_for()
    assert NAME in page.inner_text("#status")
    assert f"{WIDTH} × {HEIGHT} pixels" in text
    assert (2 if task in ("detect", "segment") else 1) == article.locator("canvas").count()
    assert "" == accessibility_report(page)


def colours_of(article: Any, number: int) -> list[list[int]]:
    """Return the colours of a canvas at the centres of the red, green and dark parts, and at its lower right corner."""
    return (
        article.locator("canvas")
        .nth(number)
        .evaluate(
            """canvas => [[0.3, 0.5], [0.87, 0.25], [0.87, 0.75]].map(([x, y]) => [
            ...canvas.getContext("2d").getImageData(x * canvas.width, y * canvas.height, 1, 1).data.slice(0, 3)
        ])"""
        )
    )


def test_maps_and_boxes_are_drawn_where_they_are(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(served)
    choose(page, "segment")
    article = send(page, photo)
    red, green, dark = colours_of(article, 1)
    assert 3 == len({tuple(red), tuple(green), tuple(dark)})
    assert [red, green, dark] != colours_of(article, 0)  # coloured by class
    choose(page, "detect")
    article = send(page, photo)
    edges = (
        article.locator("canvas")
        .nth(1)
        .evaluate(
            """canvas => [0.5, canvas.width * 0.75].map((x) => [
            ...canvas.getContext("2d").getImageData(x, canvas.height - 6, 1, 1).data.slice(0, 3)
        ])"""
        )
    )
    assert edges[0] not in ([255, 0, 0], [48, 48, 48])  # the left edge of the red part
    assert edges[1] not in ([255, 0, 0], [48, 48, 48])  # and the right one


def test_two_versions_are_side_by_side_and_labels_are_texts(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(served)
    choose(page, "classify")
    assert ("2", ["", "2", "1"]) == (
        page.input_value("#version"),
        page.locator("#other option").evaluate_all("options => options.map((option) => option.value)"),
    )
    page.select_option("#other", "1")
    article = send(page, photo)
    titles = [f"classify version {version}" for version in (2, 1)]
    assert titles == article.locator("h4").all_inner_texts()
    first, second = article.locator("section").all()
    assert [2, 3] == [part.locator("li").count() for part in (first, second)]
    assert MARKUP in second.inner_text()
    assert first.bounding_box()["y"] == second.bounding_box()["y"]
    assert "Playground · savedmodel-bakery" == page.title()
    assert 0 == page.locator("img[src=x], b").count()


def test_the_copied_commands_do_the_same(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes, tmp_path: Path
) -> None:
    page = open_page(served, permissions=["clipboard-read", "clipboard-write"])
    (tmp_path / NAME).write_bytes(photo)
    for task in TASKS:
        choose(page, task)
        article = send(page, photo)
        article.locator("summary").click()
        copied = []
        for language in ("curl", "Python"):
            article.get_by_role("button", name=f"Copy {language}").click()
            page.wait_for_function("name => document.querySelector('#status').textContent.includes(name)", arg=language)
            copied.append(page.evaluate("navigator.clipboard.readText()"))
        for command in (["bash", "-c", copied[0]], [sys.executable, "-c", copied[1]]):
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
            assert 0 == done.returncode, done.stderr
            expected = {"embed": "embedding", "regress": "values"}.get(task, "red")
            assert expected in done.stdout or "vector" in done.stdout, done.stdout


def test_everything_can_be_done_with_the_keyboard(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(served)
    page.locator("#models tr").first.wait_for()

    def tab_to(selector: str) -> Any:
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return page.locator(":focus")
        raise AssertionError(f"{selector} cannot be reached with Tab")

    tab_to("#models-scroll")
    tab_to("#model")
    page.keyboard.type("classify")
    assert "classify" == page.input_value("#model")
    tab_to("#version")
    page.keyboard.press("ArrowDown")
    assert "1" == page.input_value("#version")
    tab_to("#other")
    tab_to("#files")
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files({"name": NAME, "mimeType": "image/png", "buffer": photo})
    page.locator("#results details").wait_for()
    tab_to("#again")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('#results details').length === 2")
    page.locator("#clear").focus()
    tab_to("summary")
    page.keyboard.press("Enter")
    tab_to("pre")
    assert "Copy curl" == tab_to("button").inner_text()
    page.locator("#again").focus()
    tab_to("#clear")
    page.keyboard.press("Enter")
    assert 0 == page.locator("#results article").count()
    assert "files" == page.evaluate("document.activeElement.id")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<html>", "the photo cannot be read: neither base64 nor a supported image format"),
        (b"", "the body is empty"),
        (b"\x89PNG\r\n\x1a\n damaged", "the photo cannot be read: damaged, truncated or of an unsupported kind"),
    ],
    ids=["html", "empty", "damaged"],
)
def test_a_bad_photo_has_a_reason(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes, content: bytes, reason: str
) -> None:
    page = open_page(served)
    choose(page, "classify")
    article = send(page, content)
    assert reason in article.locator(".error").inner_text()
    assert reason in page.inner_text("#status")
    assert "This browser cannot show the file." in article.inner_text()
    assert "" == accessibility_report(page)
    assert ANSWERED in send(page, photo).inner_text()  # the next one works


def test_a_photo_is_shown_upright(served: ServerProcess, open_page: Callable[..., Any]) -> None:
    file = io.BytesIO()
    picture = Image.new("RGB", (20, 40), "#f00")
    picture.getexif()[0x0112] = 6  # rotate by 90 degrees
    picture.save(file, "JPEG", exif=picture.getexif())
    page = open_page(served)
    choose(page, "segment")
    article = send(page, file.getvalue())
    assert "40 × 20 pixels" in article.inner_text()
    sizes = article.locator("canvas").evaluate_all("all => all.map((canvas) => [canvas.width, canvas.height])")
    assert [[40, 20], [40, 20]] == sizes


def test_photos_can_be_dropped_and_pasted(served: ServerProcess, open_page: Callable[..., Any], photo: bytes) -> None:
    page = open_page(served)
    choose(page, "classify")
    script = """([event, encoded]) => {
        const bytes = Uint8Array.from(atob(encoded), (character) => character.charCodeAt(0));
        const data = new DataTransfer();
        data.items.add(new File([bytes], `${event}.png`, { type: "image/png" }));
        const options = { bubbles: true, cancelable: true, dataTransfer: data, clipboardData: data };
        const made = event === "paste" ? new ClipboardEvent(event, options) : new DragEvent(event, options);
        document.querySelector("h1").dispatchEvent(made);
    }"""
    for count, event in enumerate(("drop", "paste"), 1):
        page.evaluate(script, [event, b64encode(photo).decode()])
        page.wait_for_function("count => document.querySelectorAll('#results details').length === count", arg=count)
        assert f"{event}.png" == page.locator("#results h3").first.inner_text()


def test_the_page_asks_for_a_token(guarded: ServerProcess, open_page: Callable[..., Any], photo: bytes) -> None:
    page = open_page(guarded)
    page.locator("#token-form").wait_for()
    assert "" == accessibility_report(page)
    page.fill("#token", "wrong")
    page.keyboard.press("Enter")
    page.get_by_text("the token is not valid").wait_for()
    assert ("true", "token") == (
        page.get_attribute("#token", "aria-invalid"),
        page.evaluate("document.activeElement.id"),
    )
    assert "" == accessibility_report(page)
    page.fill("#token", SECRET)
    page.keyboard.press("Enter")
    page.locator("#models tr").first.wait_for()
    assert not page.is_visible("#token-form")
    article = send(page, photo)
    assert ANSWERED in article.inner_text()
    article.get_by_alt_text("What the model saw").wait_for()
    shown = article.locator("pre").all_text_contents()
    assert all("BAKERY_CLIENT_TOKEN" in text for text in shown)
    assert SECRET not in page.content()
    page.reload()
    page.locator("#token-form").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_in_light_and_dark(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes, scheme: str
) -> None:
    page = open_page(served, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    for model in ("classify", "segment"):
        choose(page, model)
        page.select_option("#other", "1")
        send(page, photo).locator("summary").first.click()
    assert 360 == page.evaluate("document.documentElement.scrollWidth")
    assert "" == accessibility_report(page)
    brightness = page.evaluate("() => Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])")
    assert (brightness < 60) is (scheme == "dark")


def test_a_server_that_has_stopped_is_reported(
    task_models: Path, open_page: Callable[..., Any], photo: bytes, tmp_path: Path
) -> None:
    flags = ("--model_name=regress", f"--model_base_path={task_models.parent / 'regress'}", "--enable_playground")
    with ServerProcess(*flags, log=tmp_path / "log") as running:
        page = open_page(running)
        page.locator("#models tr").first.wait_for()
    assert "The server cannot be reached" in send(page, photo).locator(".error").inner_text()
