"""The command line: exact exit codes and stdout, and the line on stderr for each error."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import canned_models
import pytest

from savedmodel_bakery.client.commands.cli import main
from savedmodel_bakery.exits import refusal_text


@dataclass(frozen=True)
class Outcome:
    """The result of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process."""

    def run(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Outcome(caught.value.code or 0, printed.out, printed.err)

    return run


@pytest.fixture
def connection(peer: Any, transport: str) -> list[str]:
    """The options that select the canned server."""
    return ["--format", transport, "--port", str(peer.grpc_port), "--rest_api_port", str(peer.rest_port)]


@pytest.fixture
def photos(tmp_path: Path) -> SimpleNamespace:
    """Files with the two photos that the canned server knows, and with a bad one."""
    for name in ("horse", "cat", "bad"):
        (tmp_path / f"{name}.jpg").write_bytes(name.encode())
    return SimpleNamespace(**{name: tmp_path / f"{name}.jpg" for name in ("horse", "cat", "bad")})


@pytest.mark.parametrize(
    ("options", "names", "expected"),
    [
        ([], ["horse"], "sorrel\t0.750\t339\n"),
        ([], ["horse", "cat"], "{horse}\tsorrel\t0.750\t339\n{cat}\ttabby\t0.500\t281\n"),
        (["--top-k", 2], ["horse"], "sorrel\t0.750\t339\nzebra\t0.125\t340\n"),
        (["--top-k", 1], ["horse", "cat"], "{horse}\tsorrel\t0.750\t339\n{cat}\ttabby\t0.500\t281\n"),
        (["-n", "top_k", "--top-k", 3], ["horse"], "sorrel\t0.750\t339\nzebra\t0.125\t340\nox\t0.062\t345\n"),
    ],
    ids=["one", "several", "top-k of one", "top-k of several", "all classes"],
)
def test_each_class_is_a_line_with_the_path_if_there_are_several_images(
    run: Run, connection: list[str], photos: SimpleNamespace, options: list[object], names: list[str], expected: str
) -> None:
    images = [word for name in names for word in ("-i", vars(photos)[name])]
    assert Outcome(0, expected.format_map(vars(photos)), "") == run(*connection, *options, *images)


def test_dash_is_stdin(run: Run, connection: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"cat")))
    assert Outcome(0, "tabby\t0.500\t281\n", "") == run(*connection, "-i", "-")


def test_json_is_one_object_per_image(run: Run, connection: list[str], photos: SimpleNamespace, transport: str) -> None:
    outcome = run(*connection, "--json", "--top-k", 1, "-i", photos.horse, "-i", photos.bad)
    named = {"model": "efficientnet_lite0", "version": 3 if transport == "grpc" else None, "signature": "top_k"}
    expected = [
        {
            "image": str(photos.horse),
            "ok": True,
            "label": "sorrel",
            "error": None,
            "top": [{"label": "sorrel", "score": 0.75, "class_id": 339}],
            **named,
        },
        {"image": str(photos.bad), "ok": False, "label": None, "error": "no image", "top": [], **named},
    ]
    assert expected == [json.loads(line) for line in outcome.out.splitlines()]
    assert (1, f"{photos.bad}: no image\n") == (outcome.code, outcome.err)


def test_a_bad_image_is_one_line_and_the_others_are_classified(
    run: Run, connection: list[str], photos: SimpleNamespace
) -> None:
    outcome = run(*connection, "-i", photos.horse, "-i", photos.bad, "-i", photos.cat)
    assert (1, f"{photos.bad}: no image\n") == (outcome.code, outcome.err)
    assert [str(photos.horse), str(photos.cat)] == [line.split("\t")[0] for line in outcome.out.splitlines()]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["-m", "pets"], "NOT_FOUND: Servable not found for request: Latest(pets)"),
        (
            ["--version", "9"],
            'NOT_FOUND: Servable not found for request: Specific(efficientnet_lite0, 9); "efficientnet_lite0" is the '
            "default model: pass the name of another one with -m",
        ),
        (["--label", "new"], "INVALID_ARGUMENT: Unrecognized servable version label: new"),
    ],
    ids=["model", "version", "label"],
)
def test_a_refusal_is_the_servers_message_and_exit_1(
    run: Run, connection: list[str], photos: SimpleNamespace, options: list[str], error: str
) -> None:
    assert Outcome(1, "", f"error: {error}\n") == run(*connection, *options, "-i", photos.horse)


def test_more_classes_than_the_model_returns_are_refused(
    run: Run, connection: list[str], photos: SimpleNamespace
) -> None:
    error = "INVALID_ARGUMENT: top_k 4 is too large: the model returns 3 classes"
    assert Outcome(1, "", f"{photos.horse}: {error}\n") == run(*connection, "--top-k", "4", photos.horse)


@pytest.mark.parametrize(
    "command",
    [["ask", "PHOTO"], ["bulk", "PHOTO", "--out", "OUT"], ["status"], ["metadata"], ["bench", "-i", "PHOTO"]],
    ids=lambda command: command[0],
)
def test_a_server_without_the_default_model_asks_for_the_name(
    run: Run,
    connection: list[str],
    photos: SimpleNamespace,
    tmp_path: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(canned_models.MODELS, "efficientnet_lite0")
    spelled = [{"PHOTO": photos.horse, "OUT": tmp_path / "rows.jsonl"}.get(word, word) for word in command]
    outcome = run(*spelled, *connection)
    assert (1, "") == (outcome.code, outcome.out)
    assert outcome.err.endswith(
        'NOT_FOUND: Servable not found for request: Latest(efficientnet_lite0); "efficientnet_lite0" is the default '
        "model: pass the name of another one with -m\n"
    )


@pytest.mark.parametrize(
    ("message", "is_hinted"),
    [
        ("NOT_FOUND: Could not find any versions of model efficientnet_lite0", True),
        ("NOT_FOUND: Could not find version 7 of model efficientnet_lite0", True),
        ("NOT_FOUND: Could not find any versions of model efficientnet_lite01", False),
        ("NOT_FOUND: Servable not found for request: Latest(efficientnet_lite01)", False),
        ("UNAVAILABLE: Servable not found for request: Latest(efficientnet_lite0)", False),
    ],
    ids=["no version", "other versions", "longer name", "longer name in a call", "other code"],
)
def test_the_hint_about_the_model_is_for_the_default_model_only(message: str, is_hinted: bool) -> None:
    assert is_hinted == refusal_text(message).endswith("pass the name of another one with -m")


def test_a_deadline_is_exit_1(
    run: Run, connection: list[str], peer: Any, transport: str, photos: SimpleNamespace
) -> None:
    where = {"grpc": f"{peer.grpc_port} over gRPC", "rest": f"{peer.rest_port} over REST"}[transport]
    expected = f"error: no response from 127.0.0.1:{where} within 0.2 s\n"
    assert Outcome(1, "", expected) == run(*connection, "-m", "slow", "-s", "0.2", "-i", photos.horse)


@pytest.mark.parametrize("command", [["-i", "PHOTO", "-i", "PHOTO"], ["status"], ["metadata"], ["--metadata"]], ids=str)
def test_no_server_is_exit_3(
    run: Run, closed_port: int, transport: str, photos: SimpleNamespace, command: list[str]
) -> None:
    spelled = [str(photos.horse) if word == "PHOTO" else word for word in command]
    name = {"grpc": "gRPC", "rest": "REST"}[transport]
    expected = f"error: cannot connect to 127.0.0.1:{closed_port} over {name}; is a model server running there?\n"
    assert Outcome(3, "", expected) == run("-f", transport, "-t", f"127.0.0.1:{closed_port}", *spelled)


@pytest.mark.parametrize(
    ("protocol", "port", "name"), [("GRPC", 8500, "gRPC"), ("REST", 8501, "REST"), ("AMQP", 5672, "AMQP")]
)
def test_a_host_name_that_does_not_resolve_is_named(run: Run, protocol: str, port: int, name: str) -> None:
    expected = f"error: cannot connect to no-such-host.invalid:{port} over {name}: the host name does not resolve\n"
    assert Outcome(3, "", expected) == run("-f", protocol, "-t", "no-such-host.invalid", "status")


def test_ports_of_other_protocols_in_the_environment_do_not_affect_amqp(
    run: Run, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAKERY_CLIENT_PORT", "8500")
    monkeypatch.setenv("BAKERY_CLIENT_REST_API_PORT", "8501")
    expected = f"error: cannot connect to 127.0.0.1:{closed_port} over AMQP; is a broker running there?\n"
    assert Outcome(3, "", expected) == run("--format", "AMQP", "-t", f"127.0.0.1:{closed_port}", "status")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param([], "no photo: pass one or more as arguments (- is stdin), or see --help", id="nothing to do"),
        pytest.param(
            ["-i", "no.jpg"],
            "Invalid value for '-i' / '--image-file': File 'no.jpg' does not exist.",
            id="missing file",
        ),
        pytest.param(
            ["--port", "0", "status"],
            "Invalid value for '--port' (env var: 'BAKERY_CLIENT_PORT'): 0 is not in the range 1<=x<=65535.",
            id="port",
        ),
        pytest.param(
            ["-s", "0", "status"],
            "Invalid value for '-s' / '--timeout-seconds' (env var: 'BAKERY_CLIENT_TIMEOUT_SECONDS', "
            "'BAKERY_CLIENT_TIMEOUT_SECOND'): 0.0 is not in the range 0<x<=86400.",
            id="time",
        ),
        pytest.param(
            ["--top-k", "0"],
            "Invalid value for '--top-k' (env var: 'BAKERY_CLIENT_TOP_K'): 0 is not in the range x>=1.",
            id="top-k",
        ),
        pytest.param(
            ["-t", "http://a/v1", "status"],
            'invalid target "a/v1": must be HOST or HOST:PORT, without a path',
            id="URL with a path",
        ),
        pytest.param(
            ["-t", "ftp://user:secret@a:8501", "status"],
            'invalid target "ftp://…@a:8501": the scheme must be one of grpc, grpcs, http, https',
            id="other scheme",
        ),
        pytest.param(
            ["-t", "a:8500:8501", "status"],
            'invalid target "a:8500:8501": must be HOST or HOST:PORT, without a path',
            id="two ports",
        ),
        pytest.param(
            ["predict", "--input", "x=x.npy", "--output-format", "npz"],
            "--output-format npz needs --out, the folder for the files",
            id="npz without a folder",
        ),
        pytest.param(
            ["--version", "1", "status", "--label", "a"],
            'version 1 and label "a" exclude each other: pass one of them',
            id="version and label",
        ),
        pytest.param(["-m", "", "status"], "the model name and the version label must not be empty", id="empty model"),
        pytest.param(
            ["--json", "status"],
            "Invalid value for '[PHOTO]...': File 'status' does not exist.",
            id="option of ask before a command",
        ),
        pytest.param(
            ["ask", "https://photos.example/horse.jpg"],
            "Invalid value for '[PHOTO]...': invalid image https://photos.example/horse.jpg: URLs are not fetched; "
            "pass a path, or - for an image on stdin",
            id="URL",
        ),
        pytest.param(
            ["statsu"],
            '"statsu" is neither a command nor a file; the commands are '
            "ask, bulk, predict, results, metadata, status, wait, check, bench, rollout",
            id="misspelled command",
        ),
        pytest.param(
            ["bulk", "x", "--out", "y.jsonl", "--retry-seconds", "nan"],
            "Invalid value for '--retry-seconds': 'nan' is not a valid number.",
            id="not a number",
        ),
        pytest.param(["-n"], "Option '-n' requires an argument.", id="option without its value"),
        pytest.param(["results", "q"], "result queues need --format AMQP", id="results over gRPC"),
        pytest.param(
            ["--format", "AMQP", "--port", "1", "status"],
            "--port does not apply to --format AMQP: add port, TLS and password to --target, a URL",
            id="port of AMQP",
        ),
    ],
)
def test_wrong_usage_is_explained_and_exit_2(run: Run, arguments: list[str], error: str) -> None:
    outcome = run(*arguments)
    assert (2, "", f"Error: {error}") == (outcome.code, outcome.out, outcome.err.splitlines()[-1])


@pytest.mark.parametrize("command", [[], ["ask"], ["-i"], ["ask", "-i"]], ids=" ".join)
def test_a_folder_instead_of_a_photo_names_the_command_for_folders(
    run: Run, tmp_path: Path, command: list[str]
) -> None:
    folder = tmp_path / "my photos"
    folder.mkdir()
    outcome = run(*command, folder)
    assert (2, "") == (outcome.code, outcome.out)
    assert outcome.err.endswith(
        f": {folder} is a folder; to classify the photos in it: bakery bulk '{folder}' --out FILE\n"
    )


def test_photos_can_be_arguments_with_and_without_the_command(
    run: Run, connection: list[str], photos: SimpleNamespace
) -> None:
    expected = f"{photos.horse}\tsorrel\t0.750\t339\n{photos.cat}\ttabby\t0.500\t281\n"
    assert Outcome(0, expected, "") == run(*connection, photos.horse, photos.cat)
    assert Outcome(0, expected, "") == run("ask", *connection, photos.horse, photos.cat)
    assert Outcome(0, expected, "") == run("ask", "-i", photos.horse, *connection, photos.cat)


def test_a_missing_file_is_reported_before_anything_is_sent(
    run: Run, connection: list[str], photos: SimpleNamespace
) -> None:
    outcome = run(*connection, "-i", photos.horse, "-i", "no.jpg")
    assert (2, "") == (outcome.code, outcome.out)


def test_status_prints_one_line_per_version(run: Run, connection: list[str]) -> None:
    expected = "3\tAVAILABLE\n2\tEND\tNOT_FOUND: no \\x1bsaved_model.pb\n"
    assert Outcome(0, expected, "") == run("status", *connection)


def test_status_as_json_is_one_object_per_version(run: Run, connection: list[str]) -> None:
    expected = [
        {"version": 3, "state": "AVAILABLE", "code": "OK", "message": ""},
        {"version": 2, "state": "END", "code": "NOT_FOUND", "message": "no\n\x1bsaved_model.pb"},
    ]
    assert expected == [json.loads(line) for line in run("status", "--json", *connection).out.splitlines()]


def test_the_option_and_the_command_print_the_same_metadata(run: Run, connection: list[str]) -> None:
    by_option, by_command = run(*connection, "--metadata"), run("metadata", *connection)
    assert by_option == by_command
    expected = {
        "model_spec": {"name": "efficientnet_lite0", "signature_name": "", "version": "3"},
        "metadata": {"signature_def": {"signature_def": canned_models.MODELS["efficientnet_lite0"].signatures}},
    }
    assert expected == json.loads(by_option.out)
    assert (0, "") == (by_option.code, by_option.err)


@pytest.mark.parametrize("transport", ["grpc", "rest", "v2", "v2-grpc"])
def test_without_a_name_the_only_model_is_called(
    run: Run, connection: list[str], photos: SimpleNamespace, peer: Any, v2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BAKERY_CLIENT_MODEL_SPEC_NAME")
    several = run(*connection, photos.horse)
    names = ", ".join(sorted(peer.model_names()))
    assert (2, f"Error: the server has several models: pass one of {names} with -m") == (
        several.code,
        several.err.splitlines()[-1],
    )
    monkeypatch.setattr(peer, "model_names", lambda: ["tagger"])
    assert Outcome(0, "sky\t0.750\nsea\t0.500\n", "") == run(*connection, photos.horse)
    row = json.loads(run(*connection, "--json", photos.horse).out)
    assert "tagger" == row["model"]
    if "v2" not in connection[1]:
        v2.is_ours = False  # without an index, as tensorflow_model_server
        assert Outcome(0, "sorrel\t0.750\t339\n", "") == run(*connection, photos.horse)


def test_options_after_the_command_override_those_before_it(run: Run, connection: list[str]) -> None:
    assert "2\tEND\tNOT_FOUND: no \\x1bsaved_model.pb\n" == run(*connection, "--version", 2, "status").out
    assert "3\tAVAILABLE\n" == run(*connection, "--version", 2, "status", "--version", 3).out


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        (["status"], 1, "error: NOT_FOUND: Servable not found for request: Latest(pets)\n"),
        (["-m", "half_plus_two", "status"], 0, ""),
    ],
    ids=["environment", "command line"],
)
def test_the_command_line_overrides_the_environment(
    run: Run, connection: list[str], monkeypatch: pytest.MonkeyPatch, command: list[str], code: int, error: str
) -> None:
    monkeypatch.setenv("BAKERY_CLIENT_MODEL_SPEC_NAME", "pets")
    monkeypatch.setenv("BAKERY_CLIENT_TOP_K", "3")
    outcome = run(*connection, *command)
    assert (code, error) == (outcome.code, outcome.err)


@pytest.mark.parametrize(
    "command",
    [["--help"], *([name, "--help-all"] for name in ("status", "metadata", "bench"))],
    ids=["ask", "status", "metadata", "bench"],
)
def test_help_shows_defaults_and_environment(run: Run, command: list[str]) -> None:
    shown = " ".join(run(*command).out.split())
    assert "[env var: BAKERY_CLIENT_TIMEOUT_SECONDS, BAKERY_CLIENT_TIMEOUT_SECOND; default: 30.0; 0<x<=86400]" in shown
    assert "BAKERY_CLIENT_MODEL_SPEC_NAME; default: (the server's only model; efficientnet_lite0 if it" in shown


def test_help_ends_with_examples(run: Run) -> None:
    assert "Examples:\n    bakery ask horse.jpg cat.png\n" in run("--help").out


def test_a_path_that_is_not_utf_8_is_shown_with_a_replacement(run: Run, connection: list[str], tmp_path: Path) -> None:
    photo = tmp_path / os.fsdecode(b"\xff.jpg")
    photo.write_bytes(b"horse")
    assert Outcome(0, f"{tmp_path}/\ufffd.jpg\tsorrel\t0.750\t339\n" * 2, "") == run(
        *connection, "-i", photo, "-i", photo
    )


def test_a_closed_stdout_causes_no_traceback(peer: Any, photos: SimpleNamespace) -> None:
    command = [sys.executable, "-m", "savedmodel_bakery.client", "--port", str(peer.grpc_port)]
    with subprocess.Popen(
        [*command, "-i", str(photos.horse), "-i", str(photos.cat)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (b"", 1) == (process.stderr.read(), process.wait(30))


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--timeout-seconds", "9", "--model-spec-name", "half_plus_two"],
        ["status", "--timeout_seconds", "9", "--model_spec_name", "half_plus_two"],
        ["--timeout_second=9", "--model_spec_name=half_plus_two", "status"],
        ["-s9", "-mhalf_plus_two", "status"],
    ],
    ids=["kebab-case", "underscores", "alias before the command", "short"],
)
def test_options_have_aliases(run: Run, connection: list[str], arguments: list[str]) -> None:
    assert "3\tAVAILABLE\n2\tEND\tNOT_FOUND: no \\x1bsaved_model.pb\n" == run(*arguments, *connection).out


def test_help_does_not_show_aliases_and_lists_common_options_last(run: Run) -> None:
    shown = run("classify", "--help-all").out
    assert "--retry-seconds" in shown
    assert "_" not in "".join(word for word in shown.split() if word.startswith("--"))
    assert shown.index("\nOptions:") < shown.index("--jobs") < shown.index("\nCommon options:") < shown.index("--port")


def test_classify_is_a_second_name_of_bulk(run: Run) -> None:
    assert run("bulk", "--help").out == run("classify", "--help").out.replace(" classify ", " bulk ", 1)
