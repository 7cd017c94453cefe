"""The command `bakery`: its subcommands, help, completion, errors and exit codes, each in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import model_makers
import pytest
import requests
from server_process import free_port

from savedmodel_bakery.client import Client
from savedmodel_bakery.command import COMMANDS, SECTIONS
from savedmodel_bakery.commands import serve

# Packages that only extras install.
EXTRAS = (
    "aio_pika", "flatbuffers", "grpc_health", "grpc_reflection", "httptools", "jinja2", "kagglehub", "keras",
    "matplotlib", "multipart", "onnxruntime", "PIL", "prometheus_client", "pyarrow", "ray", "tensorflow",
    "tensorflow_hub", "tensorflow_text", "tomli_w", "uvloop",
)  # fmt: skip
# Packages of the base install that take long to import.
HEAVY = ("google.protobuf", "grpc", "ml_dtypes", "numpy", "requests", "tqdm")
WITHOUT = """
import sys
for name in {modules!r}:
    sys.modules[name] = None
from savedmodel_bakery.command import main
main()
"""


def run(
    *arguments: str, without: tuple[str, ...] = (), folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `bakery` in a process in which some modules cannot be imported."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(modules=without), *arguments],
        cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_the_commands_are_exactly_these() -> None:
    assert {
        "Bake": ["bake", "function", "compose", "triton", "parity", "inspect", "versions"],
        "Serve": ["serve", "model-server", "amqp", "token", "rollout"],
        "Call": ["ask", "bulk", "predict", "metadata", "status", "wait", "check", "bench", "results"],
    } == {title: list(commands) for title, commands in SECTIONS.items()}


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_the_commands_by_section_and_the_options_last(option: str) -> None:
    ended = run(option, without=(*EXTRAS, *HEAVY))
    assert (0, "") == (ended.returncode, ended.stderr[-3000:])
    headings = [line for line in ended.stdout.splitlines() if line.endswith(":") and not line.startswith("  ")]
    assert ["Bake:", "Serve:", "Call:", "Options:"] == headings
    assert all(f"\n  {name} " in ended.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "model-server"])
def test_every_commands_help_works_without_extras_and_imports_nothing_heavy(name: str) -> None:
    ended = run(name, "--help", without=(*EXTRAS, *HEAVY))
    assert (0, "") == (ended.returncode, ended.stderr[-3000:])
    assert ended.stdout.startswith(f"Usage: bakery {name} ")


@pytest.mark.parametrize(
    "arguments",
    ["exporter", "exporter bake", "client", "client ask", "serving", "serving amqp"],
)
def test_the_help_of_python_m_works_without_extras(arguments: str) -> None:
    package, *words = arguments.split()
    code = f"import runpy, sys; sys.modules.update(dict.fromkeys({EXTRAS!r})); "
    code += f"runpy.run_module('savedmodel_bakery.{package}', run_name='__main__', alter_sys=True)"
    ended = subprocess.run([sys.executable, "-c", code, *words, "--help"], capture_output=True, text=True, timeout=60)
    assert (255 if arguments == "serving" else 0, "") == (ended.returncode, ended.stderr)
    assert ended.stdout.lower().startswith("usage: ")


def test_the_flags_of_model_server_are_shown_without_extras() -> None:
    ended = run("model-server", "--help", without=EXTRAS)
    assert (255, "") == (ended.returncode, ended.stderr)
    assert "--rest_api_port=0" in ended.stdout


def test_version_is_that_of_the_distribution() -> None:
    assert f"bakery {version('savedmodel-bakery')}\n" == run("--version", without=(*EXTRAS, *HEAVY)).stdout


@pytest.mark.parametrize(
    ("arguments", "missing", "extra"),
    [
        (["bake", "--model", "efficientnet-lite0"], "tensorflow", "export"),
        (["bake", "--model", "efficientnet-lite0", "--reference", "photo.jpg"], "onnxruntime", "export,onnx"),
        (["function", "math:sqrt", "--input", "x:float32"], "tensorflow", "export"),
        (["serve", "model"], "tensorflow", "serve"),
        (["serve", "model"], "httptools", "serve"),
        (["amqp", "--model-base-path", "model"], "aio_pika", "amqp,serve"),
        (["amqp", "--model-base-path", "model"], "tensorflow", "amqp,serve"),
        (["amqp", "--server", "127.0.0.1"], "prometheus_client", "amqp"),
        (["amqp", "--url", "amqp://127.0.0.1/", "--server", "127.0.0.1"], "aio_pika", "amqp"),
        (["amqp", "status"], "aio_pika", "amqp"),
        (["ask", "--format", "AMQP", "photo.jpg"], "aio_pika", "amqp"),
        (["bulk", "photo.jpg", "--out", "rows.parquet"], "pyarrow", "parquet"),
        (["bulk", "photo.jpg", "--out", "rows", "--engine", "ray", "--model-base-path", "model"], "ray", "serve,ray"),
        (
            ["bulk", "photo.jpg", "--out", "o", "--engine", "ray", "--model-base-path", "model"],
            "prometheus_client",
            "serve,ray",
        ),
        (["bulk", "photo.jpg", "--out", "o", "--engine", "ray", "--model-base-path", "model"], "pyarrow", "serve,ray"),
        (["bench", "-i", "photo.jpg", "--plot", "plot.svg"], "matplotlib", "plot"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_missing_extra_is_named_in_one_line(
    arguments: list[str], missing: str, extra: str, clone: Path, tmp_path: Path
) -> None:
    (tmp_path / "model" / "1").mkdir(parents=True)
    (tmp_path / "photo.jpg").write_bytes(b"a photo")
    ended = run(*arguments, without=(missing,), folder=tmp_path)
    assert 1 == ended.returncode, ended.stderr
    assert 1 == len(ended.stderr.splitlines()), ended.stderr
    assert ended.stderr.endswith(f"try: pip install '{clone}[{extra}]'\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["bak"], 2),
        (["bake", "--modle", "x"], 2),
        (["serve", "missing"], 2),
        (["inspect", "."], 1),
        (["versions", "."], 1),
        (["status", "--port", "1"], 3),
        (["amqp", "status", "--url", "amqp://127.0.0.1:1/"], 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes_have_an_exit_code_and_no_traceback(arguments: list[str], code: int, tmp_path: Path) -> None:
    ended = run(*arguments, folder=tmp_path)
    assert (code, "") == (ended.returncode, ended.stdout)
    assert "Traceback" not in ended.stderr
    assert ended.stderr


@pytest.mark.parametrize(
    ("module", "arguments", "code"),
    [
        ("client", ["status", "--port", "1"], 3),
        ("client", ["status", "--label", "a", "--version", "1"], 2),
        ("serving", ["amqp", "status", "--url", "amqp://127.0.0.1:1/"], 3),
        ("serving", ["amqp", "--server", "http://host"], 2),
        ("serving", ["amqp", "--server", "host", "--model-base-path", "."], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_python_m_has_the_errors_and_exit_codes_of_bakery(
    module: str, arguments: list[str], code: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", f"savedmodel_bakery.{module}", *arguments]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    expected = run(*arguments, folder=tmp_path)
    last_line = expected.stderr.splitlines()[-1]
    assert (code, code) == (expected.returncode, ended.returncode)
    assert last_line == ended.stderr.splitlines()[-1]
    assert last_line.startswith("Error: " if code == 2 else "error: ")


def test_bulk_on_ray_without_a_version_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"a photo")
    arguments = ("bulk", "photo.jpg", "--out", "rows", "--model-base-path", ".")
    ended = run(*arguments, "--engine", "ray", folder=tmp_path)
    assert (1, 1) == (ended.returncode, len(ended.stderr.splitlines()))
    assert ended.stderr.startswith("error: NOT_FOUND: no version of ")


@pytest.mark.parametrize(
    "arguments",
    [
        "savedmodel_bakery --help",
        "savedmodel_bakery bake --help",
        "savedmodel_bakery versions .",
        "savedmodel_bakery model-server --help",
        "savedmodel_bakery model-server --port=x",
        "savedmodel_bakery model-server --model_base_path=relative",
        "savedmodel_bakery.serving --help",
        "savedmodel_bakery.serving --version",
        "savedmodel_bakery.serving amqp --help",
        "savedmodel_bakery.exporter versions .",
        "savedmodel_bakery.client --help",
    ],
)
def test_a_closed_pipe_ends_a_command_silently(arguments: str, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as output:
        command = [sys.executable, "-m", *arguments.split()]
        ended = subprocess.run(command, cwd=tmp_path, stdout=output, stderr=subprocess.PIPE, text=True, timeout=60)
    reason = "Couldn't interpret value x for flag port.\n" if "--port=x" in arguments else ""
    code = 255 if "--model_base_path" in arguments else 1  # a failed start of the server keeps its exit code
    assert (code, reason) == (ended.returncode, ended.stderr)


def test_a_server_whose_output_is_closed_ends_silently(tmp_path: Path) -> None:
    """As in `bakery serve FOLDER | head -1`."""
    model_makers.labelling(tmp_path / "animals")
    read_end, write_end = os.pipe()
    os.close(read_end)
    ports = ("--port", str(free_port()), "--rest-api-port", str(free_port()))
    with os.fdopen(write_end, "w") as output:
        command = [sys.executable, "-m", "savedmodel_bakery", "serve", str(tmp_path / "animals"), *ports]
        ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (1, "") == (ended.returncode, ended.stderr)


def test_a_name_is_quoted_in_the_url(capsys: pytest.CaptureFixture[str]) -> None:
    serve._print_urls("a b", 1, 2, playground=False)
    first, _, last = capsys.readouterr().out.splitlines()
    assert "Serving a b. Press Ctrl-C to stop." == first
    assert last.endswith("http://127.0.0.1:2/v1/models/a%20b")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["versions", "."]], ids=" ".join)
def test_a_full_disk_is_one_line(
    arguments: list[str], unbuffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    with Path("/dev/full").open("w") as output:
        command = [sys.executable, "-m", "savedmodel_bakery", *arguments]
        ended = subprocess.run(command, cwd=tmp_path, stdout=output, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (1, "error: cannot write the output: No space left on device\n") == (ended.returncode, ended.stderr)


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("bakery m", ["metadata", "model-server"]),
        ("bakery --v", ["--version"]),
        ("bakery serve --na", ["--name"]),
        ("bakery amqp ", ["work", "status", "purge", "requeue"]),
        ("bakery amqp --q", ["--queue"]),
        ("bakery amqp --queue photos --b", ["--batch-size"]),
        ("bakery amqp status --r", ["--reasons"]),
        ("bakery model-server --prefer", ["--prefer_tflite_model"]),
        ("bakery model-server --port=8500 --rest_api_p", ["--rest_api_port="]),
        ("bakery model-server --rest_api_port=", []),
        ("bakery model-server ", []),
    ],
    ids=str,
)
def test_the_shell_completes_commands_and_options(line: str, completions: list[str]) -> None:
    environment = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_BAKERY_COMPLETE": "bash_complete"}
    ended = run(without=(*EXTRAS, *HEAVY), **environment)
    assert (0, "") == (ended.returncode, ended.stderr)
    assert sorted(completions) == sorted(item.partition(",")[2] for item in ended.stdout.split())


@pytest.mark.parametrize("prefix", ["", "savedmodel_bakery."], ids=["clone", "installed"])
@pytest.mark.parametrize("command", ["client", "client bulk", "exporter", "serving", "serving amqp"])
def test_usage_texts_show_the_name_that_the_program_was_called_by(clone: Path, command: str, prefix: str) -> None:
    called = [sys.executable, "-m", *f"{prefix}{command}".split(), "--help"]
    ended = subprocess.run(called, cwd=clone, capture_output=True, text=True, timeout=60)
    assert ended.stdout.lower().startswith(f"usage: python -m {prefix}{command}"), ended.stdout + ended.stderr


def test_the_completion_script_is_printed() -> None:
    ended = run(_BAKERY_COMPLETE="bash_source")
    assert "complete -o nosort -F _bakery_completion bakery" in ended.stdout


@pytest.mark.parametrize("option", ["--help", "--version", "--no_such_flag", "-h", "--port=x"])
def test_model_server_has_the_flags_texts_and_exit_codes_of_python_m_serving(option: str) -> None:
    """The same output, except for the name of the program in the usage text."""
    ours = run("model-server", option)
    command = [sys.executable, "-m", "savedmodel_bakery.serving", option]
    theirs = subprocess.run(command, capture_output=True, text=True, timeout=120)
    for text, expected in ((ours.stdout, theirs.stdout), (ours.stderr, theirs.stderr)):
        assert expected.replace("python -m savedmodel_bakery.serving", "bakery model-server") == text
    assert theirs.returncode == ours.returncode


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "server", "--actors", "2"], "--actors does not apply to --engine server"),
        (["--model-base-path", "model"], "--model-base-path does not apply to --engine server"),
        (["--engine", "ray", "--jobs", "2"], "--jobs does not apply to --engine ray"),
        (["--engine", "ray", "--port", "1"], "--port does not apply to --engine ray"),
        (["--engine", "ray"], "Ray needs the model: pass --model-base-path"),
        (["--engine", "spark"], "'spark' is not one of 'server', 'ray'"),
        (["--out", "."], "--out . is a folder; --engine server writes a file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bulk_rejects_options_of_the_other_engine(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"a photo")
    ended = run("bulk", "photo.jpg", "--out", "rows.csv", *arguments, folder=tmp_path)
    assert (2, True) == (ended.returncode, message in " ".join(ended.stderr.split())), ended.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--out", "rows.csv", "--port", "1", "--retry-seconds", "0"], 3, "cannot connect to 127.0.0.1:1"),
        (["--out", "rows.csv", "--rest_api_port", "1", "--retry_second", "0", "-f", "rest"], 3, "127.0.0.1:1"),
        (["--out", "rows", "--engine", "ray", "--model-base-path", "."], 1, "no version of"),
    ],
    ids=["server", "aliases", "ray"],
)
def test_bulk_runs_the_engine(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"a photo")
    ended = run("bulk", "photo.jpg", *arguments, folder=tmp_path)
    assert (code, True) == (ended.returncode, message in ended.stderr), ended.stderr


@contextmanager
def serving(*arguments: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    with log.open("w") as errors:
        command = [sys.executable, "-m", "savedmodel_bakery", "serve", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_serve_prints_its_urls_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    model_makers.labelling(tmp_path / "animals")
    port, rest_api_port = free_port(), free_port()
    ports = ("--port", str(port), "--rest-api-port", str(rest_api_port))
    with serving(str(tmp_path / "animals"), *ports, log=tmp_path / "log") as process:
        assert process.stdout
        first, grpc_line, rest_line, page_line = (process.stdout.readline().strip() for _ in range(4))
        assert "Serving animals" in first
        assert f"gRPC  127.0.0.1:{port}" == grpc_line
        assert f"REST  http://127.0.0.1:{rest_api_port}/v1/models/animals" == rest_line
        assert "text/html; charset=utf-8" == requests.get(page_line.split()[1], timeout=30).headers["Content-Type"]
        (status,) = requests.get(rest_line.split()[1], timeout=30).json()["model_version_status"]
        assert ("1", "AVAILABLE") == (status["version"], status["state"])
        with Client(grpc_line.split()[1], model="animals") as client:
            assert [b"sorrel"] == client.predict({"image": [b"horse"]}).outputs["output_0"].tolist()
        process.send_signal(signal.SIGINT)
        assert 0 == process.wait(60)
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_serve_has_no_page_if_it_is_turned_off_and_answers_to_names_of_this_machine(tmp_path: Path) -> None:
    model_makers.labelling(tmp_path / "animals")
    port, rest_api_port = free_port(), free_port()
    ports = ("--port", str(port), "--rest-api-port", str(rest_api_port))
    options = ("--no-playground", "--allowed-host", "my.proxy", *ports)
    with serving(str(tmp_path / "animals"), *options, log=tmp_path / "log") as process:
        assert process.stdout
        rest_line = [process.stdout.readline() for _ in range(3)][-1]
        origin = rest_line.split()[1].partition("/v1/")[0]
        for path in ("/", "/playground"):
            response = requests.get(origin + path, timeout=30)
            assert (404, "text/html") == (response.status_code, response.headers["Content-Type"])
        for host, status in (("localhost", 200), ("my.proxy:80", 200), ("evil.example", 403)):
            response = requests.get(f"{origin}/v1/models/animals", headers={"Host": host}, timeout=30)
            assert status == response.status_code, host


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (["1/saved_model.pb"], None),
        (["saved_model.pb"], "is a version; pass the folder that contains it"),
        (["flowers/1/saved_model.pb"], "contains no version; versions are folders named 1, 2, 3, …"),
    ],
    ids=["base path", "version", "model root"],
)
def test_serve_checks_the_folder_before_anything_else(tmp_path: Path, content: list[str], message: str | None) -> None:
    for name in content:
        (tmp_path / "model" / name).parent.mkdir(parents=True)
        (tmp_path / "model" / name).touch()
    ended = run("serve", "model", folder=tmp_path, without=("tensorflow",))
    if message is None:
        assert (1, True) == (ended.returncode, "[serve]'" in ended.stderr)
    else:
        assert (2, True) == (ended.returncode, message in " ".join(ended.stderr.split()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--port", "9500", "--rest-api-port", "9500"), "--port and --rest-api-port are both 9500: choose two"),
        (("--name", "a\nb"), "invalid name 'a\\nb': must be printable text; choose another with --name"),
    ],
)
def test_serve_rejects_options_that_can_not_work(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    (tmp_path / "model" / "1").mkdir(parents=True)
    ended = run("serve", "model", *options, folder=tmp_path)
    assert (2, "") == (ended.returncode, ended.stdout)
    assert message in " ".join(ended.stderr.split())


def test_serve_names_a_port_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "model" / "1").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        ended = run("serve", "model", "--rest-api-port", port, "--port", str(free_port()), folder=tmp_path)
    assert 1 == ended.returncode
    assert (
        f"error: cannot listen on port {port}: Address already in use; choose another with --rest-api-port\n"
        == ended.stderr
    )


TAKES_A_PORT = """
import socket
import sys
from savedmodel_bakery.command import main
from savedmodel_bakery.serving.commands import model_server as cli

def import_and_take_the_port(imported=cli.import_tensorflow):
    global listener
    imported()
    listener = socket.create_server(("127.0.0.1", {port}))

cli.import_tensorflow = import_and_take_the_port
main()
"""


@pytest.mark.parametrize("option", ["--port", "--rest-api-port"])
def test_serve_names_a_port_that_was_taken_while_tensorflow_loaded(tmp_path: Path, option: str) -> None:
    model_makers.labelling(tmp_path / "animals")
    ports = {"--port": str(free_port()), "--rest-api-port": str(free_port())}
    command = [sys.executable, "-c", TAKES_A_PORT.format(port=ports[option]), "serve", str(tmp_path / "animals")]
    for pair in ports.items():
        command += pair
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (1, "") == (ended.returncode, ended.stdout)
    assert "Traceback" not in ended.stderr
    assert (
        f"error: cannot listen on port {ports[option]}: Address already in use; choose another with {option}"
        == ended.stderr.splitlines()[-1]
    )
