"""`bakery rollout` on two real servers: one that reads the config file itself, and one that is sent it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import model_makers
import pytest
from google.protobuf import text_format
from server_process import ServerProcess, free_port
from stored_versions import memory_store
from waiting import wait_until

from savedmodel_bakery import Client, RequestRefusedError
from savedmodel_bakery.client.commands import rollout as module
from savedmodel_bakery.client.rollout import rollout as rollout_module
from savedmodel_bakery.client.rollout import servers as server_module
from savedmodel_bakery.client.rollout.config_file import locked
from savedmodel_bakery.client.rollout.servers import ModelServer
from savedmodel_bakery.client.servers import parse_server
from savedmodel_bakery.exits import run_command
from savedmodel_bakery.storage.publish import publish
from savedmodel_bakery.wire import schema, version_folder

EQUAL, OTHER_LABELS, BROKEN, OTHER_SCORES, WRONG_GOLDENS = 2, 3, 4, 5, 6

CONFIG = """# Models of the shop
model_config_list {{
  config {{
    name: "sizes"  # the only one
    base_path: "{base_path}"
    model_platform: "tensorflow"
    model_version_policy {{ {policy} }}{labels}
  }}
}}
"""
STABLE_1 = '\n    version_labels { key: "stable" value: 1 }'


def write_goldens(version: Path, label: str) -> None:
    """Write the golden of an image of three bytes."""
    folder = version / version_folder.GOLDENS
    folder.mkdir(parents=True)
    index = {"model": "any", "tolerances": {}, "signatures": {"top_k": {"file": "top_k.jsonl"}}}
    (folder / "index.json").write_text(json.dumps(index))
    shape = {"dim": [{"size": 1}]}
    request = {"inputs": {"image": {"dtype": "DT_STRING", "tensorShape": shape, "stringVal": ["YWJj"]}}}
    outputs = {"error": {"dtype": "DT_STRING", "tensorShape": shape, "stringVal": [""]}}
    outputs["class_ids"] = {"dtype": "DT_INT32", "tensorShape": {"dim": [{"size": 1}, {"size": 2}]}}
    outputs["class_ids"]["intVal"] = [int(label), 0]
    (folder / "top_k.jsonl").write_text(json.dumps({"request": request, "response": {"outputs": outputs}}))


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The versions: 1; one with the same answers and goldens; others that differ or are broken."""
    folder = tmp_path_factory.mktemp("rollout") / "sizes"
    model_makers.sizing(folder, 1)
    model_makers.sizing(folder, OTHER_LABELS, plus=1)
    model_makers.sizing(folder, OTHER_SCORES, score=0.75)
    for version in (EQUAL, WRONG_GOLDENS):
        shutil.copytree(folder / "1", folder / str(version))
    write_goldens(folder / str(EQUAL), "3")
    write_goldens(folder / str(WRONG_GOLDENS), "4")
    (folder / str(BROKEN)).mkdir()
    return folder


class Place(NamedTuple):
    """The config file, and the servers that use it."""

    base_path: Path
    file: Path
    polling: ServerProcess
    sent: ServerProcess


@pytest.fixture(scope="module")
def servers(base_path: Path) -> Iterator[Place]:
    file = base_path.with_name("models.config")
    file.write_text(CONFIG.format(base_path=base_path, policy="specific { versions: 1 }", labels=""))
    flags = (f"--model_config_file={file}", "--max_num_load_retries=0")
    poll = "--model_config_file_poll_wait_seconds=1"
    with (
        ServerProcess(*flags, poll, log=file.with_name("polling.log"), wait=False) as polling,
        ServerProcess(*flags, log=file.with_name("sent.log")) as sent,
    ):
        polling.wait_until_listening()
        yield Place(base_path, file, polling, sent)


@pytest.fixture
def place(servers: Place) -> Place:
    """Both servers with version 1 and no label."""
    configure(servers)
    return servers


def configure(
    place: Place,
    policy: str = "specific { versions: 1 }",
    labels: str = "",
    *,
    serving: frozenset[int] = frozenset({1}),
) -> str:
    """Write the config file, and return its text when both servers serve these versions."""
    text = CONFIG.format(base_path=place.base_path, policy=policy, labels=labels)
    place.file.write_text(text)
    message = text_format.Parse(text, schema.ModelServerConfig(), descriptor_pool=schema.POOL)
    for server in map(model_server, (place.sent, place.polling)):
        server.reload(message, timeout_s=30)
        wait_until(lambda server=server: server.read("sizes").available == serving)
        server.close()
    return text


def model_server(process: ServerProcess) -> ModelServer:
    return ModelServer(parse_server(process.target))


def answer(server: ServerProcess, **choice: Any) -> tuple[str | None, int | None]:
    """Return the label of an image of three bytes, and the version that it comes from."""
    with Client(server.target, model="sizes", **choice) as client:
        prediction = client.predict({"image": [b"abc"]}, signature="top_k")
        return prediction.arrays["labels"][0, 0].decode(), prediction.version


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(place: Place, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command for the server that is sent the configuration, unless other targets are stated.

    Its rows do not have the version that could not be loaded, which servers remember from other tests.
    """

    def run(command: str, *arguments: object, targets: tuple[str, ...] = ()) -> tuple[int, str, str]:
        options = [word for target in targets or (place.sent.target,) for word in ("-t", target)]
        words = [command, "sizes", "--config", str(place.file), *options, *map(str, arguments)]
        code = run_command(module.rollout, words)
        out, err = capsys.readouterr()
        return code, re.sub(rf"(?m)^\S+\t{BROKEN}\tEND\t.*\n", "", out), err

    return run


def rows(server: ServerProcess, *versions: str) -> str:
    return "".join(f"{server.target}\t{version}\n" for version in versions)


WARNING = (
    "warning: requests without version and label get version 2, the highest one; to get the stable version 1, callers "
    "must state the label stable\n"
)


def test_a_canary_is_started_promoted_and_rolled_back_on_all_servers(place: Place, run: Run) -> None:
    both = (place.sent.target, place.polling.target)
    code, out, err = run("start", "--canary", EQUAL, targets=both)
    expected = [rows(server, "2\tAVAILABLE\tcanary", "1\tAVAILABLE\tstable") for server in (place.sent, place.polling)]
    assert (0, "".join(expected), f"loading version 2\n{WARNING}") == (code, out, err)
    assert (
        CONFIG.format(
            base_path=place.base_path,
            policy="specific { versions: 1 versions: 2 }",
            labels=STABLE_1 + '\n    version_labels { key: "canary" value: 2 }',
        )
        == place.file.read_text()
    )
    assert (("3", 1), ("3", 2)) == (answer(place.sent, label="stable"), answer(place.sent, label="canary"))

    code, out, err = run("promote", targets=both)
    assert (0, "2 of 2 responses agree with the goldens of version 2\n") == (code, err)
    assert rows(place.sent, "2\tAVAILABLE\tstable", "1\tAVAILABLE\tprevious") in out
    assert ("3", 2) == answer(place.polling, label="stable")
    with pytest.raises(RequestRefusedError, match="Unrecognized servable version label: canary"):
        answer(place.sent, label="canary")

    code, out, err = run("rollback", targets=both)
    assert (0, "") == (code, err)
    assert rows(place.polling, "1\tAVAILABLE\tstable") in out
    assert (
        CONFIG.format(base_path=place.base_path, policy="specific { versions: 1 }", labels=STABLE_1)
        == place.file.read_text()
    )
    assert ("3", 1) == answer(place.sent) == answer(place.polling, label="stable")
    code, out, err = run("rollback", targets=both)
    assert (1, "") == (code, out)
    assert f'error: model "sizes" in {place.file} has neither a canary nor a previous version\n' == err


def test_a_server_that_reads_the_file_itself_needs_no_configuration(place: Place, run: Run) -> None:
    """Over REST, which cannot send it. The server never refuses the file."""
    targets, logged = (place.polling.url,), len(place.polling.log.read_text())
    assert 2 == run("start", "--canary", EQUAL, targets=targets)[0]
    assert 0 == run("start", "--canary", EQUAL, "--polled", targets=targets)[0]
    assert ("3", 2) == answer(place.polling, label="canary")
    assert 0 == run("promote", "--polled", targets=targets)[0]
    assert ("3", 2) == answer(place.polling, label="stable")
    assert 0 == run("start", "--canary", OTHER_LABELS, "--polled", targets=targets)[0]
    assert "versions: 2 versions: 3 }" in place.file.read_text()
    assert 0 == run("promote", "--no-goldens", "--polled", targets=targets)[0]
    assert ("4", 3) == answer(place.polling, label="stable")
    assert 0 == run("rollback", "--polled", targets=targets)[0]
    assert ("3", 2) == answer(place.polling, label="stable") == answer(place.polling)
    assert "FAILED_PRECONDITION" not in place.polling.log.read_text()[logged:]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that could not load a version before gets a second to begin again."""
    monkeypatch.setattr(rollout_module, "_NOTICE_S", 1.0)


@pytest.mark.usefixtures("impatient")
def test_a_canary_that_cannot_be_loaded_is_removed_again(place: Place, run: Run) -> None:
    before = place.file.read_text()
    for _ in range(2):
        code, out, err = run("start", "--canary", BROKEN)
        assert (1, "", before) == (code, out, place.file.read_text())
        loading, restored, error = err.splitlines()
        assert ("loading version 4", f"{place.file} is as it was") == (loading, restored)
        assert error.startswith(f"error: {place.sent.target} cannot load version 4: NOT_FOUND: Specified file path")
    assert ("3", 1) == answer(place.sent)


def test_a_canary_that_is_not_available_in_time_is_removed_again(place: Place, run: Run) -> None:
    """The server does not read the file."""
    before = place.file.read_text()
    code, out, err = run("start", "--canary", OTHER_LABELS, "--polled", "--timeout-seconds", 0.5)
    assert (1, "", before) == (code, out, place.file.read_text())
    problem = f"{place.sent.target} after 0.5 s: version 3 is "
    assert problem in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("version", "options", "reasons"),
    [
        (
            WRONG_GOLDENS,
            [],
            [
                'top_k 1: "class_ids" is ',
                "error: version 6 was not promoted: 1 of 1 responses differ from its goldens",
            ],
        ),
        (OTHER_LABELS, [], ["3 has no assets.extra/goldens", "to promote it without goldens, add --no-goldens"]),
        (
            OTHER_LABELS,
            ["--no-goldens", "--compare", "photos"],
            [
                "versions 1 and 3 have equal labels for 0 of 4 photos (0.000; at least 0.9 is required); scores differ "
                "by 0.0000 in the mean (at most 0.1)",
                "error: version 3 was not promoted: too few photos have equal labels (--min-equal-labels)",
            ],
        ),
        (
            OTHER_SCORES,
            ["--no-goldens", "--compare", "photos"],
            [
                "4 of 4 photos (1.000; at least 0.9 is required); scores differ by 0.1250 in the mean (at most 0.1)",
                "error: version 5 was not promoted: scores differ too much (--max-score-difference)",
            ],
        ),
    ],
    ids=["goldens", "no goldens", "labels", "scores"],
)
@pytest.mark.usefixtures("photos")
def test_a_canary_that_answers_differently_is_not_promoted(
    place: Place, run: Run, version: int, options: list[str], reasons: list[str]
) -> None:
    assert 0 == run("start", "--canary", version)[0]
    before = place.file.read_text()
    code, out, err = run("promote", *options)
    assert (1, "", before) == (code, out, place.file.read_text())
    for reason in reasons:
        assert reason in err
    assert 1 == answer(place.sent, label="stable")[1]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five photos, of which the model can read four."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for number, content in enumerate((b"a", b"ab", b"abc", b"abcd", b"bad")):
        (tmp_path / "photos" / f"{number}.jpg").write_bytes(content)


@pytest.mark.usefixtures("photos")
def test_limits_of_the_comparison_can_be_changed(place: Place, run: Run) -> None:
    assert 0 == run("start", "--canary", OTHER_LABELS)[0]
    assert 0 == run("promote", "--no-goldens", "--compare", "photos", "--min-equal-labels", 0)[0]
    assert ("4", 3) == answer(place.sent, label="stable")


def test_an_interrupted_start_is_continued(place: Place, run: Run) -> None:
    """The file names the canary already, and the server knows nothing of it, or has loaded it."""
    policy = "specific { versions: 1 versions: 2 }"
    text = CONFIG.format(base_path=place.base_path, policy=policy, labels="")
    place.file.write_text(text)
    assert 0 == run("start", "--canary", EQUAL)[0]
    started = place.file.read_text()
    place.file.write_text(text)
    assert 0 == run("start", "--canary", EQUAL)[0]
    assert 0 == run("start", "--canary", EQUAL)[0]
    assert started == place.file.read_text()
    assert ("3", 2) == answer(place.sent, label="canary")


@pytest.mark.usefixtures("impatient")
def test_a_canary_left_by_an_interrupted_start_is_removed_if_it_cannot_be_loaded(place: Place, run: Run) -> None:
    before = place.file.read_text()
    place.file.write_text(before.replace("versions: 1", "versions: 1 versions: 4"))
    assert 1 == run("start", "--canary", BROKEN)[0]
    assert before == place.file.read_text()


def test_an_interrupted_promotion_or_rollback_is_continued(place: Place, run: Run) -> None:
    """The file is that of the next step already, and the server still has the old one."""
    assert 0 == run("start", "--canary", EQUAL)[0]
    started = place.file.read_text()
    assert 0 == run("promote")[0]
    promoted = place.file.read_text()
    assert 0 == run("rollback")[0]
    rolled_back = place.file.read_text()
    assert 0 == run("start", "--canary", EQUAL)[0]
    assert started == place.file.read_text()
    place.file.write_text(promoted)
    assert 0 == run("promote")[0]
    assert ("3", 2) == answer(place.sent, label="stable")
    code, _, err = run("promote")
    assert (1, f'error: model "sizes" in {place.file} has no canary: start one first\n') == (code, err)
    place.file.write_text(rolled_back)
    assert 0 == run("rollback")[0]
    assert (rolled_back, ("3", 1)) == (place.file.read_text(), answer(place.sent))


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt: an interrupted command leaves the handler that ends the process."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_puts_the_file_back(
    number: signal.Signals, place: Place, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = place.file.read_text()
    reload, calls = ModelServer.reload, []

    def interrupted(server: ModelServer, config: Any, *, timeout_s: float) -> None:
        calls.append(config)
        reload(server, config, timeout_s=timeout_s)
        if len(calls) == 1:
            signal.raise_signal(number)

    monkeypatch.setattr(ModelServer, "reload", interrupted)
    assert 130 == run("start", "--canary", EQUAL)[0]
    assert (before, 2) == (place.file.read_text(), len(calls))


def test_a_model_that_followed_the_latest_version_is_pinned(place: Place, run: Run) -> None:
    """The newest version serves everybody already, so the stable one must be stated."""
    configure(place, "latest { num_versions: 1 }", serving=frozenset({WRONG_GOLDENS}))
    code, _, err = run("start", "--canary", WRONG_GOLDENS)
    assert (1, True) == (code, "state with --stable which version is stable" in err)
    assert 0 == run("start", "--canary", WRONG_GOLDENS, "--stable", 1)[0]
    assert "model_version_policy { specific { versions: 1 versions: 6 } }" in place.file.read_text()
    assert (("3", 1), ("3", 6)) == (answer(place.sent, label="stable"), answer(place.sent, label="canary"))


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        (["start", "--canary", 3], 1, "version 2 is the canary already: promote it or roll it back first"),
        (["start", "--canary", 1], 1, "version 2 is the canary already: promote it or roll it back first"),
        (["start", "--canary", 2, "--stable", 3], 1, "version 1 is stable, not 3: leave out --stable"),
        (["start", "--canary", 9], 1, "its versions: 1, 2, 3, 4, 5, 6"),
        (["promote", "--compare", "none"], 2, "not found: none is neither a file, a folder nor a glob"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else None,
)
def test_steps_that_make_no_sense_are_refused(
    place: Place, run: Run, command: list[Any], code: int, error: str
) -> None:
    labels = STABLE_1 + ' version_labels { key: "canary" value: 2 }'
    configure(place, "specific { versions: [1, 2] }", serving=frozenset({1, 2}))
    text = configure(place, "specific { versions: [1, 2] }", labels, serving=frozenset({1, 2}))
    actual, out, err = run(*command)
    assert (code, "", text) == (actual, out, place.file.read_text())
    assert error in " ".join(err.split())


def test_a_server_that_cannot_be_reached(place: Place, run: Run) -> None:
    """It stops a start, before anything is changed, but not the rollback of the others; `status` prints it as a row."""
    before, gone = place.file.read_text(), f"127.0.0.1:{free_port()}"
    code, _, err = run("start", "--canary", EQUAL, targets=(place.sent.target, gone))
    assert (3, before) == (code, place.file.read_text())
    assert f"error: cannot connect to {gone} over gRPC; is a model server running there?\n" == err
    assert 0 == run("start", "--canary", EQUAL)[0]
    code, out, err = run("rollback", targets=(gone, place.sent.target))
    assert (3, rows(place.sent, "1\tAVAILABLE\tstable")) == (code, out)
    assert f"skipping {gone}: cannot connect to {gone} over gRPC" in err
    assert f"error: not rolled back: {gone}; run the same command again when the cause is fixed" == err.splitlines()[-1]
    assert 3 == run("rollback", targets=(gone, place.sent.target))[0]
    assert 3 == run("rollback", targets=(gone,))[0]
    code, out, _ = run("status", targets=(gone, place.sent.target))
    row = f"{gone}\t-\t-\t-\tcannot connect to {gone} over gRPC; is a model server running there?\n"
    assert (3, row + rows(place.sent, "1\tAVAILABLE\tstable")) == (code, out)


def test_status_of_a_server_that_does_not_respond(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_STATE_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        code, out, _ = run("status", targets=(f"http://{target}",))
    assert (3, f"{target}\t-\t-\t-\tno response from {target} over REST within 0.3 s\n") == (code, out)


def test_status_compares_the_servers_with_the_file(place: Place, run: Run) -> None:
    assert 0 == run("start", "--canary", EQUAL)[0]
    assert 0 == run("status", targets=(place.sent.url,))[0]
    code, out, _ = run("status", "--json")
    states = {row["version"]: (row["server"], row["state"], row["labels"]) for row in map(json.loads, out.splitlines())}
    assert (place.sent.target, "AVAILABLE", ["canary"]) == states[2]
    place.file.write_text(place.file.read_text().replace('"stable" value: 1', '"stable" value: 2'))
    code, out, err = run("status")
    assert (1, True) == (code, f"{place.sent.target}\t1\tAVAILABLE\tstable\n" in out)
    assert f"{place.sent.target} differs from {place.file}: label stable is version 1, but must be version 2\n" == err


def test_prune_keeps_what_is_needed(place: Place, run: Run) -> None:
    """The file names versions 1 and 3, and the server, which does not read it, has loaded 1 and 2."""
    folder = place.base_path.with_name("pruned")
    shutil.copytree(place.base_path, folder)
    shutil.copytree(folder / "1", folder / ".pruned-0")
    shutil.copytree(folder / "1", folder / "07")
    (folder / "3").rename(folder / "003")
    (folder / "notes").mkdir()
    configure(place, "specific { versions: [1, 2] }", serving=frozenset({1, 2}))
    place.file.write_text(place.file.read_text().replace("versions: [1, 2]", "versions: [1, 3]"))
    options = ("--keep", 2, "--base-path", folder)
    code, out, err = run("prune", *options, "--dry-run")
    expected = "".join(f"{folder / name}\n" for name in ("4", "5"))
    assert (0, expected) == (code, out)
    kept = f"version 1 is kept: named in {place.file}\nversion 2 is kept: AVAILABLE on {place.sent.target}\n"
    assert f"{kept}version 3 is kept: named in {place.file}\n" == err
    assert (folder / "4").is_dir()
    assert (3, "") == run("prune", *options, targets=(place.sent.target, f"127.0.0.1:{free_port()}"))[:2]
    assert (0, expected) == run("prune", *options)[:2]
    assert {"1", "2", "003", "6", "07", "notes"} == {path.name for path in folder.iterdir()}
    place.file.write_text(place.file.read_text().replace("specific { versions: [1, 3] }", "all {}"))
    code, out, err = run("prune", *options)
    assert (1, "") == (code, out)
    assert f'error: model "sizes" has the policy all in {place.file}: no version was removed\n' == err


def test_versions_in_a_bucket_are_found_checked_and_pruned(place: Place, run: Run) -> None:
    """The server that is pruned for has loaded version 1."""
    base = memory_store()
    for number in (1, EQUAL, WRONG_GOLDENS):
        publish(place.base_path / str(number), base, number)
    for name in ("4/variables/rest of a removal", "3/variables/unfinished", "3/assets.extra/manifest.json"):
        base.create(name, b"")
    code, _, err = run("start", "--canary", 3, "--base-path", base)
    assert (1, f"error: version 3 not found in {base}; its versions: 1, {EQUAL}, {WRONG_GOLDENS}\n") == (code, err)
    assert 0 == run("start", "--canary", EQUAL, "--base-path", base)[0]
    code, _, err = run("promote", "--base-path", base)
    assert (0, True) == (code, f"responses agree with the goldens of version {EQUAL}" in err)
    configure(place)
    publish(place.base_path / str(EQUAL), base, 9)
    assert (0, f"{base}/{EQUAL}\n{base}/{WRONG_GOLDENS}\n") == run("prune", "--keep", 1, "--base-path", base)[:2]
    assert {"1", "3", "9"} == {name.partition("/")[0] for name in base.sizes()}


def test_prune_keeps_what_models_with_the_same_base_path_name(place: Place, run: Run) -> None:
    twin = f'config {{ name: "twin" base_path: "{place.base_path}/../sizes" model_platform: "tensorflow" '
    twin += "model_version_policy { latest { num_versions: 5 } } }"
    place.file.write_text(place.file.read_text().replace("  config {", f"  {twin}\n  config {{"))
    code, out, err = run("prune", "--keep", 1, "--dry-run")
    assert (0, "") == (code, out)
    assert f"version 2 is kept: among the latest 5 that {place.file} names\n" in err


def test_prune_removes_nothing_from_a_folder_without_the_versions_in_use(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "another_model"
    for number in range(7, 12):
        (folder / str(number)).mkdir(parents=True)
    code, out, err = run("prune", "--keep", 1, "--base-path", folder)
    assert (1, "") == (code, out)
    assert re.fullmatch(rf"error: {folder} lacks version \d \(.*\): no version was removed\n", err)
    assert len(list(folder.iterdir())) == 5


def test_prune_removes_nothing_if_a_server_does_not_serve_the_model(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.file.write_text(place.file.read_text().replace('"sizes"', '"unknown"'))
    assert 1 == run_command(module.rollout, ["prune", "unknown", "--config", str(place.file), "-t", place.sent.target])
    expected = f'error: {place.sent.target} does not serve model "unknown": no version was removed\n'
    assert ("", expected) == tuple(capsys.readouterr())


def test_another_rollout_at_the_same_time_is_refused(place: Place, run: Run) -> None:
    with locked(place.file):
        code, out, err = run("start", "--canary", EQUAL)
    expected = f"error: another rollout is changing {place.file}: run the command again when it has ended\n"
    assert (1, "", expected) == (code, out, err)
    assert ["models.config"] == [path.name for path in place.file.parent.glob("*models.config*")]
