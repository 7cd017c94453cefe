"""The command `bakery`: its subcommands, help, completion, errors and exit codes, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from bakery_command import run

from savedmodel_bakery.command import ALIASES, COMMANDS, SECTIONS

# Packages that only extras install.
EXTRAS = (
    "aio_pika", "flatbuffers", "grpc_health", "grpc_reflection", "httptools", "jinja2", "kagglehub", "keras",
    "matplotlib", "multipart", "onnxruntime", "PIL", "prometheus_client", "pyarrow", "ray", "tensorflow",
    "tensorflow_hub", "tensorflow_text", "tomli_w", "uvloop",
)  # fmt: skip
# Packages of the base install that take long to import.
HEAVY = ("google.protobuf", "grpc", "ml_dtypes", "numpy", "requests", "tqdm")


def test_the_commands_are_exactly_these() -> None:
    assert {
        "Bake": ["bake", "function", "compose", "triton", "parity", "inspect"],
        "Store": ["publish", "pull", "package"],
        "Serve": ["serve", "model-server", "amqp", "token", "rollout"],
        "Call": ["ask", "bulk", "predict", "metadata", "status", "wait", "check", "bench"],
    } == {title: list(commands) for title, commands in SECTIONS.items()}


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_the_commands_by_section_and_the_options_last(option: str) -> None:
    ended = run(option, without=(*EXTRAS, *HEAVY))
    assert (0, "") == (ended.returncode, ended.stderr[-3000:])
    headings = [line for line in ended.stdout.splitlines() if line.endswith(":") and not line.startswith("  ")]
    assert ["Bake:", "Store:", "Serve:", "Call:", "Options:"] == headings
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
        (["bulk", "photo.jpg", "-m", "flowers", "--out", "rows.parquet"], "pyarrow", "parquet"),
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
        (["bake", "a.keras", "--model", "b.keras"], 2),
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
    ("arguments", "same"),
    [
        (["help"], ["--help"]),
        (["help", "bake"], ["bake", "--help"]),
        (["amqp", "help", "status"], ["amqp", "status", "--help"]),
        (["help", "amqp", "status"], ["amqp", "status", "--help"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_help_is_a_command_too(arguments: list[str], same: list[str]) -> None:
    expected, ended = run(*same), run(*arguments)
    assert (0, expected.stdout) == (ended.returncode, ended.stdout)
    assert ended.stdout


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["bakee"], "No such command 'bakee'. Did you mean bake?"),
        (["amqp", "stats"], "No such command 'stats'. Did you mean status?"),
        (["rollout", "pormote"], "No such command 'pormote'. Did you mean promote?"),
        (["quux"], "No such command 'quux'."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_similar_commands_are_suggested(arguments: list[str], suggestion: str) -> None:
    ended = run(*arguments)
    assert (2, f"Error: {suggestion}") == (ended.returncode, ended.stderr.splitlines()[-1])


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


def test_earlier_names_of_commands_work_but_are_not_shown() -> None:
    for name in ALIASES:
        assert run(name, "--help").stdout.startswith(f"Usage: bakery {name} ")
        assert f"\n  {name} " not in run("--help").stdout


def test_bulk_on_ray_without_a_version_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"a photo")
    arguments = ("bulk", "photo.jpg", "--out", "rows", "--model-base-path", ".")
    ended = run(*arguments, "--engine", "ray", folder=tmp_path)
    assert 2 == ended.returncode
    assert "Error: . contains no version; versions are folders named 1, 2, 3, …" == ended.stderr.splitlines()[-1]


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


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("savedmodel_bakery bak", 2),
        ("savedmodel_bakery --help", 0),
        ("savedmodel_bakery bulk - --out rows.csv -m half", 0),
        ("savedmodel_bakery predict --input x=- -m half", 2),
        ("savedmodel_bakery model-server --port=x", 255),
        ("savedmodel_bakery.serving --help", 255),
    ],
)
def test_closed_streams_cause_no_traceback(arguments: str, code: int, tmp_path: Path) -> None:
    """Errors never go to stdout instead of a closed stderr."""
    for closed in ("<&- >&- 2>&-", "<&- 2>&-", "<&- >&-"):
        command = ["sh", "-c", f'exec "$0" -m {arguments} {closed}', sys.executable]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert code == ended.returncode, ended.stderr
        assert "Traceback" not in ended.stdout + ended.stderr
        assert "rror" not in ended.stdout


def test_a_full_disk_behind_stderr_keeps_the_exit_code() -> None:
    for arguments, code in ((["bak"], 2), (["status", "--port", "1"], 3), (["model-server", "--port=x"], 255)):
        with Path("/dev/full").open("w") as errors:
            command = [sys.executable, "-m", "savedmodel_bakery", *arguments]
            assert code == subprocess.run(command, stdout=subprocess.DEVNULL, stderr=errors, timeout=60).returncode


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("savedmodel_bakery", ["--help"]),
        ("savedmodel_bakery", ["versions", "."]),
        ("savedmodel_bakery.serving", ["--help"]),
        ("savedmodel_bakery.serving", ["--version"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_full_disk_is_one_line(
    module: str, arguments: list[str], unbuffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    with Path("/dev/full").open("w") as output:
        command = [sys.executable, "-m", module, *arguments]
        ended = subprocess.run(command, cwd=tmp_path, stdout=output, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (1, "error: cannot write the output: No space left on device\n") == (ended.returncode, ended.stderr)


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("bakery m", ["metadata", "model-server"]),
        ("bakery --v", ["--version"]),
        ("bakery serve --na", ["--name"]),
        ("bakery amqp ", ["work", "status", "purge", "requeue", "results"]),
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
        (["--out", "rows", "--engine", "ray", "--model-base-path", "."], 2, "contains no version"),
    ],
    ids=["server", "aliases", "ray"],
)
def test_bulk_runs_the_engine(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"a photo")
    ended = run("bulk", "photo.jpg", *arguments, folder=tmp_path)
    assert (code, True) == (ended.returncode, message in ended.stderr), ended.stderr
