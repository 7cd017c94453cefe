"""The worker's command line, without a broker."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from server_process import free_port

from savedmodel_bakery.extras import install_command
from savedmodel_bakery.serving.commands.amqp import cli

MAIN = "from savedmodel_bakery.serving.commands.model_server import main; main(program='serving')"


def run(
    *arguments: str,
    code: str = MAIN,
) -> tuple[int, str, str]:
    program = f"import sys; sys.argv[1:] = {['amqp', *arguments]!r}; {code}"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return process.returncode, process.stdout, process.stderr


WRONG = {
    "no model": ([], "pass either --model-base-path, to load a model, or --server, to call one"),
    "two models": (["--server", "host", "--model-base-path", "."], "pass either --model-base-path"),
    "batch size": (
        ["--server", "host", "--batch-size", "17"],
        "--batch-size 17 must not be greater than --prefetch 16",
    ),
    **{
        f"result queue {pattern}": (
            ["--server", "host", "--result-queue", pattern],
            f'invalid pattern "{pattern}": must be NAME or PREFIX*',
        )
        for pattern in ("", "a*b", "**", "*a")
    },
    "server": (["--server", "host/path"], 'target "host/path"'),
    "REST server": (["--server", "http://host"], "the target's scheme is for REST, not for gRPC"),
    "files without TLS": (
        ["--server", "host", "--ca", __file__],
        "--ca needs TLS: add --tls, or begin the target with",
    ),
    "token without a server": (
        ["--model-base-path", ".", "--token-file", "x"],
        "--token-file needs --server, the model server that it is for",
    ),
    "url": (["status", "--url", "ftp://x:correct-horse@y/"], "invalid broker address"),
    "options before a subcommand": (["--server", "host", "purge"], "unexpected extra argument (purge)"),
    "no version": (["--model-base-path", "/"], "/ contains no version; versions are folders named 1, 2, 3, …"),
}


@pytest.mark.parametrize(("arguments", "reason"), WRONG.values(), ids=WRONG)
def test_wrong_usage_is_explained(arguments: list[str], reason: str) -> None:
    code, output, error = run(*arguments)
    assert (2, "") == (code, output), error
    assert reason in error.splitlines()[-1]
    assert "horse" not in error


PRINT_MODEL = """
import types
from savedmodel_bakery.serving.amqp import handlers
from savedmodel_bakery.serving.commands import amqp as cli

def print_model(_, *, model_name, limits):
    print(model_name)
    sys.exit()

handlers.Handlers = print_model
cli._make_backend = lambda *_: types.SimpleNamespace(close=int)
cli.cli.main(sys.argv[2:], prog_name="amqp")
"""


@pytest.mark.parametrize(
    ("arguments", "model"),
    [
        (["--model-base-path", "models/flowers"], "flowers"),
        (["--model-base-path", "models/flowers/"], "flowers"),
        (["--model-base-path", "models/flowers", "--model-name", "pets"], "pets"),
        (["--server", "host"], "efficientnet_lite0"),
    ],
    ids=["folder", "slash", "name", "server"],
)
def test_the_default_model_is_named_after_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], model: str
) -> None:
    (tmp_path / "models" / "flowers" / "1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert (0, f"{model}\n") == run(*arguments, code=PRINT_MODEL)[:2]


EARLIER_SPELLINGS = [
    "--model_base_path", "--model_name", "--batch", "--timeout_second", "--expiration", "--delivery_limit",
    "--batch_size", "--timeout_seconds", "--expiration_seconds",
]  # fmt: skip


@pytest.mark.parametrize("option", EARLIER_SPELLINGS)
def test_earlier_spellings_of_options_are_accepted(option: str) -> None:
    with pytest.raises(click.BadOptionUsage, match="requires an argument"):
        cli.main(["work", option], standalone_mode=False)


def test_help_lists_defaults_environment_variables_and_examples() -> None:
    result = CliRunner().invoke(cli, ["work", "--help-all"])
    assert 0 == result.exit_code
    for text in ("[env var: BAKERY_AMQP_URL; default:", "--delivery-limit INTEGER RANGE", "x>=1", "--timeout-seconds"):
        assert text in " ".join(result.output.split())
    assert "bakery amqp --model-base-path" in CliRunner().invoke(cli, ["--help"]).output


def test_without_a_broker_the_exit_code_is_that_of_no_connection() -> None:
    port = free_port()
    code, _, error = run("status", "--url", f"amqp://worker:correct-horse@127.0.0.1:{port}/")
    assert 3 == code
    assert f"error: cannot connect to 127.0.0.1:{port} over AMQP; is a broker running there?\n" == error


def test_without_the_library_help_works_and_work_names_the_extra() -> None:
    hidden = f"sys.modules['aio_pika'] = None; {MAIN}"
    code, output, _ = run("--help", code=hidden)
    assert (0, True) == (code, "bakery amqp purge" in output)
    code, _, error = run("--server", "host", code=hidden)
    missing = f"amqp needs aio_pika, which is not installed; try: {install_command('amqp')}"
    assert (1, f"error: {missing}\n") == (code, error)


ENDINGS = {
    "an operator's Ctrl-C": (["status"], signal.SIGINT, 130, b"interrupted"),
    "SIGTERM for a worker": (["--server", "127.0.0.1:1"], signal.SIGTERM, 0, b""),
}


@pytest.fixture
def default_interrupts() -> Iterator[None]:
    """Restore the default handling of SIGINT: processes of a shell's background job inherit that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_interrupts")
@pytest.mark.parametrize(("arguments", "number", "code", "line"), ENDINGS.values(), ids=ENDINGS)
def test_signals_end_a_program_that_waits_for_a_silent_broker(
    arguments: list[str], number: int, code: int, line: bytes
) -> None:
    """The connection would time out only after 30 s."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"amqp://127.0.0.1:{silent.getsockname()[1]}/"
        command = [sys.executable, "-m", "savedmodel_bakery.serving", "amqp", *arguments, "--url", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as waiting:
            connection, _ = silent.accept()
            with connection:
                waiting.send_signal(number)
                output, _ = waiting.communicate(timeout=20)
    assert (code, line) == (waiting.returncode, output.strip())
