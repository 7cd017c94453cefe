"""The playground in a real browser: every task, the keyboard alone, tokens, bad photos, and a narrow or dark screen."""

from __future__ import annotations

import io
import json
import re
import struct
import subprocess
import sys
import zlib
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
LIMITED = "token-of-one-request-per-second"
NAME = "it's <b>a photo.png"
ANSWERED = "Answered in"
INDEX = "**/v2/repository/index"
POLL_MS = 15_000


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
    rights = (frozenset({Role.PREDICT}), frozenset({"classify"}))
    tokens = (
        Token("right", hash_secret(SECRET), *rights),
        Token("limited", hash_secret(LIMITED), *rights, requests_per_second=1),
    )
    (folder / "tokens.toml").write_text("\n".join(map(format_token, tokens)))
    flags = (
        f"--model_config_file={task_models}",
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


def change_answers(page: Any, task: str, change: Callable[[Any], None]) -> None:
    """Change the results of /photos for a model before the page gets them."""

    def respond(route: Any) -> None:
        response = route.fetch()
        answer = response.json()
        change(answer["results"][0])
        route.fulfill(response=response, json=answer)

    page.route(f"**/photos/{task}/**", respond)


def enter_token(page: Any, token: str) -> None:
    page.fill("#token", token)
    page.keyboard.press("Enter")


def python_of(article: Any) -> str:
    return article.get_by_label("Python").first.text_content()


def choose(page: Any, model: str) -> None:
    page.locator("#models tr").first.wait_for()
    page.select_option("#model", model)


EXPECTED = {
    "classify": r"red\s+9\d\.\d %\s+green\s+\d\.\d %",
    "binary": r"red\s+9\d\.\d %\s+green\s+\d\.\d %",
    "multilabel": r"red\s+8\d\.\d %",
    "embed": r"3 numbers, length 0\.\d+",
    "regress": r"green\s+3\d\.\d+\s+red\s+19\d\.\d+",
    "image": r"The network's picture",
    "keypoints": r"red\s+x 30, y 20, score 0\.900\s+green\s+x 70, y 10, score 0\.900",
    "heads": r"(?s)colour\s+red\s+\d+\.\d %.*redness\s+value\s+19\d\.\d+",
    "tensors": r"output \[3\]\s+0\.\d+",
    "detect": r"green\s+90\.0 %\s+x 60–80, y 0–20\s+red\s+90\.0 %\s+x 0–60, y 0–40",
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
    assert (2 if task in ("detect", "segment", "keypoints") else 1) == article.locator("canvas").count()
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
    is_tinted = [drawn != seen for drawn, seen in zip(colours_of(article, 1), colours_of(article, 0), strict=True)]
    assert [True, True, False] == is_tinted  # the masks of the red and the green part


def test_classes_with_the_same_label_have_the_same_colour(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(served)
    choose(page, "segment")

    def merge(result: Any) -> None:
        result.update(labels=["background", "red", "red", "blue"], shares={"background": 0.125, "red": 0.875})

    change_answers(page, "segment", merge)
    article = send(page, photo)
    drawn, below = colours_of(article, 1), colours_of(article, 0)
    layers = [
        [(both - 0.4 * photo) / 0.6 for both, photo in zip(*pair, strict=True)]
        for pair in zip(drawn, below, strict=True)
    ]
    assert layers[0] == pytest.approx(layers[1], abs=3)
    swatch = article.locator("li", has_text="red").locator(".swatch")
    colour = swatch.evaluate("box => getComputedStyle(box).backgroundColor")
    assert [int(number) for number in re.findall(r"\d+", colour)] == pytest.approx(layers[0], abs=3)


def test_a_map_that_cannot_be_drawn_leaves_the_rest(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(served)
    choose(page, "segment")
    change_answers(page, "segment", lambda result: result.update(map_png="AAAA"))
    article = send(page, photo)
    assert "The drawing cannot be shown: " in article.inner_text()
    assert re.search(EXPECTED["segment"], article.inner_text())
    article.get_by_alt_text("What the model saw").wait_for()


def test_a_long_vector_and_numbers_that_are_not_finite_are_shown(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(served)
    choose(page, "embed")
    vectors = [[3.0, 4.0] + [0.0] * 200_000, [1.0, None]]
    change_answers(page, "embed", lambda result: result.update(embedding=vectors.pop(0)))
    assert "200002 numbers, length 5.000" in send(page, photo).inner_text()
    text = send(page, photo).inner_text()
    assert "2 numbers, length not a number" in text
    assert "1.0000, not a number" in text
    choose(page, "detect")
    change_answers(page, "detect", lambda result: result["boxes"][0].update(xmin=None, score=None))
    assert re.search(r"not a number\s+x not a number–80, y 0–20", send(page, photo).inner_text())


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
            expected = {"embed": "embedding", "regress": "values", "image": "ok", "tensors": "output"}.get(task, "red")
            shown = ("<Embedding: ", "<Regression: ", "<Picture: ", "<Tensors: ")
            assert expected in done.stdout or done.stdout.startswith(shown), done.stdout


def test_the_python_of_a_request_that_failed(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes, tmp_path: Path
) -> None:
    page = open_page(served)
    choose(page, "multilabel")
    code = python_of(send(page, b"<html>"))  # the page cannot know the task yet
    (tmp_path / NAME).write_bytes(b"<html>")
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "the photo cannot be read" in json.loads(done.stdout)["error"]
    send(page, photo)
    assert "client.tags(" in python_of(send(page, b"<html>"))


def test_a_file_named_like_stdin(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes, tmp_path: Path
) -> None:
    page = open_page(served)
    choose(page, "classify")
    command = send(page, photo, "-").get_by_label("curl").first.text_content()
    (tmp_path / "-").write_bytes(photo)
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert "red" == json.loads(done.stdout)["results"][0]["label"]


def test_the_commands_have_the_prefix_of_a_proxy(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(served)
    page.route(
        "**/prefix/**", lambda route: route.fulfill(response=route.fetch(url=route.request.url.replace("/prefix", "")))
    )
    page.goto(f"{served.url}/prefix/playground")
    choose(page, "classify")
    article = send(page, photo)
    url = f"{served.url}/prefix/photos/classify/versions/2"
    assert article.get_by_label("curl").first.text_content().endswith(f" {url}")
    assert f'requests.post("{url}", data=photo)' in python_of(article)


def test_a_page_without_the_clipboard_selects_the_text(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(served)
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed')); }")
    choose(page, "classify")
    article = send(page, photo)
    article.locator("summary").click()
    article.get_by_role("button", name="Copy Python").click()
    page.get_by_text("The text is selected: press Ctrl+C").wait_for()
    assert python_of(article) == page.evaluate("String(getSelection())")


def test_everything_can_be_done_with_the_keyboard(
    guarded: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(guarded)
    page.locator("#token-form").wait_for()

    def tab_to(selector: str, key: str = "Tab") -> Any:
        for _ in range(30):
            page.keyboard.press(key)
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return page.locator(":focus")
        raise AssertionError(f"{selector} cannot be reached with Tab")

    tab_to("#token")
    page.keyboard.type(SECRET)
    page.keyboard.press("Enter")
    page.locator("#models tr").first.wait_for()
    page.wait_for_function("() => document.activeElement.id === 'model'")
    tab_to("#models-scroll", "Shift+Tab")
    tab_to("#model")
    page.keyboard.type("classify")
    assert "classify" == page.input_value("#model")
    tab_to("#version")
    page.keyboard.press("ArrowDown")
    assert "1" == page.input_value("#version")
    tab_to("#other")
    page.keyboard.type("2")
    page.wait_for_function("() => document.getElementById('other').value === '2'")
    tab_to("#files")
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files({"name": NAME, "mimeType": "image/png", "buffer": photo})
    page.wait_for_function("() => document.querySelectorAll('#results details').length === 2")
    assert ["classify version 1", "classify version 2"] == page.locator("#results h4").all_inner_texts()
    tab_to("#again")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('#results details').length === 4")
    tab_to("#clear")
    tab_to("summary")
    page.keyboard.press("Enter")
    tab_to("pre")
    assert "Copy curl" == tab_to("button").inner_text()
    tab_to("#clear", "Shift+Tab")
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


def test_a_photo_that_the_model_does_not_rotate_is_not_drawn_below_its_map(
    served: ServerProcess, open_page: Callable[..., Any]
) -> None:
    """The model finds no orientation beyond 1024 chunks of a PNG file; Chromium does."""
    file = io.BytesIO()
    picture = Image.new("RGB", (20, 40), "#f00")
    picture.getexif()[0x0112] = 6
    picture.save(file, "PNG", exif=picture.getexif())
    text = b"tEXta\0b"
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    header, rest = file.getvalue()[:33], file.getvalue()[33:]
    page = open_page(served)
    choose(page, "segment")
    article = send(page, header + 1025 * chunk + rest)
    sizes = article.locator("canvas").evaluate_all("all => all.map((canvas) => [canvas.width, canvas.height])")
    assert [[40, 20], [20, 40]] == sizes
    assert "This browser and the model rotate the photo differently." in article.inner_text()


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
    enter_token(page, "wrong")
    page.get_by_text("the token is not valid").wait_for()
    assert ("true", "token") == (
        page.get_attribute("#token", "aria-invalid"),
        page.evaluate("document.activeElement.id"),
    )
    assert "" == accessibility_report(page)
    enter_token(page, SECRET)
    page.locator("#models tr").first.wait_for()
    assert not page.is_visible("#token-form")
    article = send(page, photo)
    assert ANSWERED in article.inner_text()
    article.get_by_alt_text("What the model saw").wait_for()
    shown = article.locator("pre").all_text_contents()
    assert all("BAKERY_CLIENT_TOKEN" in text for text in shown)
    assert "The token is read from the environment variable BAKERY_CLIENT_TOKEN." in article.text_content()
    assert SECRET not in page.content()
    page.reload()
    page.locator("#token-form").wait_for()


def answer_with(status: int, message: str, **headers: str) -> Callable[[Any], None]:
    """Return a handler for `page.route`."""
    return lambda route: route.fulfill(status=status, json={"error": message}, headers=headers)


@pytest.mark.parametrize(
    ("token", "respond", "message"),
    [
        ("tokén", None, "Invalid token: it may contain letters, digits and"),
        (SECRET, answer_with(429, "too many requests"), "too many requests"),
        (SECRET, answer_with(503, "the server is stopping"), "the server is stopping"),
        (SECRET, lambda route: route.abort(), "The server cannot be reached."),
    ],
    ids=["characters", "429", "503", "network"],
)
def test_a_token_that_cannot_be_checked_has_a_reason(
    guarded: ServerProcess, open_page: Callable[..., Any], token: str, respond: Any, message: str
) -> None:
    page = open_page(guarded)
    page.locator("#token-form").wait_for()
    if respond:
        page.route(INDEX, respond)
    enter_token(page, token)
    page.locator("#token-error", has_text=message).wait_for()
    assert ("true", "token") == (
        page.get_attribute("#token", "aria-invalid"),
        page.evaluate("document.activeElement.id"),
    )
    page.unroute_all()
    enter_token(page, SECRET)
    page.locator("#models tr").first.wait_for()
    assert not page.is_visible("#token-form")


def test_photos_wait_for_the_token(guarded: ServerProcess, open_page: Callable[..., Any], photo: bytes) -> None:
    page = open_page(guarded)
    page.locator("#token-form").wait_for()
    page.set_input_files("#files", {"name": NAME, "mimeType": "image/png", "buffer": photo})
    page.locator("#status", has_text="Enter a token first.").wait_for()
    assert "token" == page.evaluate("document.activeElement.id")
    assert 0 == page.locator("#results article").count()
    enter_token(page, SECRET)
    page.locator("#models tr").first.wait_for()
    page.click("#again")
    page.locator("#results details").wait_for()
    assert ANSWERED in page.inner_text("#results article")


def test_a_token_with_a_low_limit_is_enough(
    guarded: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(guarded)
    page.locator("#token-form").wait_for()
    enter_token(page, LIMITED)
    page.locator("#models tr").first.wait_for()
    article = send(page, photo)
    assert ANSWERED in article.inner_text()
    article.get_by_alt_text("What the model saw").wait_for()


def test_a_call_that_is_rejected_again_is_an_error(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(served)
    choose(page, "classify")
    calls = []
    page.on("request", lambda request: calls.append(request.url) if "/photos/" in request.url else None)
    for count, retry_after_s in enumerate(("1", "60", ""), 1):
        page.unroute_all()
        page.route("**/photos/**", answer_with(429, "too many requests", **{"Retry-After": retry_after_s}))
        assert "too many requests" == send(page, photo).locator(".error").inner_text()
        assert 1 + count == len(calls)


def test_why_there_is_no_preview(served: ServerProcess, open_page: Callable[..., Any], photo: bytes) -> None:
    page = open_page(served)
    choose(page, "classify")
    page.route("**:predict", answer_with(429, "too many requests"))
    text = send(page, photo).inner_text()
    assert ANSWERED in text
    assert "What the model saw cannot be shown: too many requests" in text


def test_an_error_of_the_list_of_models_goes_away(served: ServerProcess, open_page: Callable[..., Any]) -> None:
    page = open_page(served)
    page.clock.install()
    page.reload()
    page.locator("#models tr").first.wait_for()
    page.route(INDEX, lambda route: route.abort())
    page.clock.fast_forward(POLL_MS)
    page.locator("#no-models", has_text="The server cannot be reached.").wait_for()
    page.unroute_all()
    page.clock.fast_forward(POLL_MS)
    page.locator("#no-models").wait_for(state="hidden")
    assert page.is_visible("#models tr >> nth=0")


def test_models_are_not_loaded_while_a_photo_runs(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(served)
    page.clock.install()
    page.reload()
    choose(page, "classify")
    loads, held = [], []
    page.on("request", lambda request: loads.append(request) if request.url.endswith("/index") else None)
    page.route("**/photos/**", lambda route: held.append(route))
    with page.expect_request("**/photos/**"):
        page.set_input_files("#files", {"name": NAME, "mimeType": "image/png", "buffer": photo})
    page.clock.fast_forward(4 * POLL_MS)
    page.evaluate("() => fetch('playground')")  # a request that is sent later than a poll would be
    assert [] == loads
    held[0].continue_()
    page.locator("#results details").wait_for()
    with page.expect_request(INDEX):
        page.clock.fast_forward(POLL_MS)


@pytest.mark.parametrize(
    ("token", "text"),
    [("", "The server has no models."), (SECRET, "This token covers no models.")],
    ids=["no token", "token"],
)
def test_no_models(
    served: ServerProcess, guarded: ServerProcess, open_page: Callable[..., Any], token: str, text: str
) -> None:
    page = open_page(guarded if token else served)
    if token:
        page.locator("#token-form").wait_for()
    page.route(INDEX, lambda route: route.fulfill(json=[]))
    if token:
        enter_token(page, token)
    else:
        page.reload()
    page.locator("#no-models", has_text=text).wait_for()


def test_a_proxy_gets_its_cookies_and_the_server_any_bytes(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(served)
    page.context.add_cookies([{"name": "session", "value": "7", "url": served.url}])
    choose(page, "classify")
    with page.expect_request("**/photos/**") as sent:
        send(page, photo)
    headers = sent.value.all_headers()
    assert ("session=7", "application/octet-stream") == (headers["cookie"], headers["content-type"])


@pytest.mark.parametrize("step", ["**/photos/**", "**/metadata", "**:predict"])
def test_clearing_the_results_ends_their_requests(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes, step: str
) -> None:
    page = open_page(served)
    choose(page, "classify")
    page.select_option("#other", "1")  # whose metadata are not known yet
    # Screen readers announce only texts of elements that were there before.
    assert "none" != page.locator("#status").evaluate("status => getComputedStyle(status).display")
    page.route(step, lambda _route: None)
    with page.expect_request(step):
        page.set_input_files("#files", {"name": NAME, "mimeType": "image/png", "buffer": photo})
    with page.expect_event("requestfailed"):
        page.click("#clear")
    page.unroute_all(behavior="ignoreErrors")
    assert ANSWERED in send(page, photo).inner_text()
    assert 1 == page.locator("#results article").count()


def test_an_answer_that_is_cut_off_is_reported(
    served: ServerProcess, open_page: Callable[..., Any], photo: bytes
) -> None:
    page = open_page(served)
    choose(page, "classify")
    page.evaluate("""() => {
        const cutOff = () => new ReadableStream({ start: (stream) => stream.error(new TypeError("network error")) });
        window.fetch = async () => new Response(cutOff());
    }""")
    message = "The server cannot be reached, or the file cannot be read."
    assert message == send(page, photo).locator(".error").inner_text()


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
