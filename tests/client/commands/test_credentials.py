"""TLS and tokens on the command line: the same options on every command, one line for each error, and no secrets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from canned_server import Peer
from tls_files import TlsFiles

from savedmodel_bakery.client.commands.cli import SECTIONS, main
from savedmodel_bakery.wire.status import Code, StatusError

TOKEN = "correct-horse-battery-staple"
COMMANDS = {name: place for commands in SECTIONS.values() for name, place in commands.items()}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process; returns exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert TOKEN not in printed.out + printed.err
        return caught.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture(scope="module")
def secured(peer: Peer, tls_files: TlsFiles) -> Iterator[SimpleNamespace]:
    """The ports of servers that require client certificates."""
    credentials = tls_files.grpc_credentials("valid", require_client=True)
    context = tls_files.ssl_context("valid", require_client=True)
    with peer.serve_grpc(credentials=credentials) as grpc_port, peer.serve_rest(tls=context) as rest_port:
        yield SimpleNamespace(grpc=grpc_port, rest=rest_port)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def options(secured: SimpleNamespace, transport: str, tls_files: TlsFiles, token_file: Path) -> list[object]:
    """The options that select the secured server over one of the transports."""
    ports = ["--format", transport, "--port", secured.grpc, "--rest-api-port", secured.rest]
    files = ["--ca", tls_files.ca, "--cert", tls_files.cert, "--key", tls_files.key]
    return [*ports, "--tls", *files, "--token-file", token_file]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_options(name: str) -> None:
    module, _, attribute = COMMANDS[name].partition(":")
    command: click.Command = getattr(import_module(module), attribute)
    for each in command.commands.values() if isinstance(command, click.Group) else [command]:
        known = {option for parameter in each.params for option in parameter.opts}
        assert {"--tls", "--ca", "--cert", "--key", "--token-file"} <= known
        assert "--token" not in known


@pytest.mark.parametrize(
    "command",
    [
        ["ask", "PHOTO"],
        ["bulk", "PHOTO", "--out", "OUT"],
        ["predict", "-m", "half_plus_two", "--input", "INPUT"],
        ["metadata"],
        ["status"],
        ["wait", "efficientnet_lite0"],
        ["bench", "-i", "PHOTO", "--callers", "2", "--requests", "4"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_calls_a_secured_server(
    run: Any, peer: Peer, options: list[object], tmp_path: Path, command: list[str]
) -> None:
    photo, inputs = tmp_path / "horse.jpg", tmp_path / "x.json"
    photo.write_bytes(b"horse")
    inputs.write_text('{"x": [1]}')
    files = {"PHOTO": photo, "INPUT": inputs, "OUT": tmp_path / "rows.jsonl"}
    peer.authorizations.clear()
    code, _, err = run(*(files.get(word, word) for word in command), *options)
    assert 0 == code, err
    assert {f"Bearer {TOKEN}"} == set(peer.authorizations)


def test_a_scheme_and_the_environment_do_the_same(
    run: Any,
    peer: Peer,
    secured: SimpleNamespace,
    transport: str,
    tls_files: TlsFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = {"grpc": f"grpcs://localhost:{secured.grpc}", "rest": f"https://localhost:{secured.rest}/"}[transport]
    for name in ("ca", "cert", "key"):
        monkeypatch.setenv(f"BAKERY_CLIENT_{name.upper()}", str(getattr(tls_files, name)))
    monkeypatch.setenv("BAKERY_CLIENT_TARGET", target)
    monkeypatch.setenv("BAKERY_CLIENT_TOKEN", TOKEN)
    peer.authorizations.clear()
    assert (0, "") == run("status")[::2]
    assert [f"Bearer {TOKEN}"] == peer.authorizations


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--ca", "CA"], "--ca needs TLS: add --tls, or begin the target with grpcs:// or https://"),
        (["--key", "KEY", "-t", "http://a"], "--key needs TLS: add --tls, or begin the target with"),
        (["--tls", "-t", "grpc://a"], "TLS is on, but the target's scheme is for a connection without TLS: use grpcs:"),
        (["--tls", "--key", "KEY"], "a private key needs its certificate: pass both"),
        (["-f", "REST", "-t", "grpcs://a"], "the target's scheme is for gRPC, not for REST"),
        (["--token-file", TOKEN], "the token file cannot be read: No such file or directory; pass the name of a file"),
        (["--token-file", "KEY"], "invalid token: it must be one line of letters, digits and"),
        (["--token", TOKEN], "No such option '--token'"),
        (
            ["-f", "AMQP", "--tls"],
            "--tls does not apply to --format AMQP: add port, TLS and password to --target, a URL",
        ),
        (
            ["-f", "AMQP", "--token-file", "x"],
            "--token-file does not apply to --format AMQP: add port, TLS and password",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_explained(run: Any, tls_files: TlsFiles, arguments: list[str], error: str) -> None:
    files = {"CA": tls_files.ca, "KEY": tls_files.key}
    code, _, err = run("status", *(files.get(word, word) for word in arguments))
    assert 2 == code
    assert err.splitlines()[-1].startswith(f"Error: {error}")


@pytest.mark.parametrize("command", [["status"], ["wait", "m", "-s", "0.5"]], ids=["one call", "several calls"])
def test_a_token_without_encryption_is_one_warning(
    run: Any, monkeypatch: pytest.MonkeyPatch, transport: str, command: list[str]
) -> None:
    monkeypatch.setenv("BAKERY_CLIENT_TOKEN", TOKEN)
    code, _, err = run(*command, "-f", transport, "-t", "no-such-host.invalid:1")
    warning, error = err.splitlines()
    assert "warning: no-such-host.invalid:1 is sent the token without encryption: use --tls" == warning
    assert (3, True) == (code, error.endswith("the host name does not resolve"))


@pytest.mark.parametrize("command", [["status"], ["ask", "PHOTO", "PHOTO"], ["bench", "-i", "PHOTO"]], ids=" ".join)
@pytest.mark.parametrize("code", [Code.UNAUTHENTICATED, Code.PERMISSION_DENIED], ids=lambda code: code.name)
def test_a_refused_token_is_one_line_that_names_the_options(
    run: Any,
    peer: Peer,
    transport: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    code: Code,
) -> None:
    def refuse(*_: object) -> None:
        raise StatusError(code, "not with this token")

    monkeypatch.setattr(peer, "find", refuse)
    photo = tmp_path / "horse.jpg"
    photo.write_bytes(b"horse")
    ports = ["-f", transport, "--port", peer.grpc_port, "--rest-api-port", peer.rest_port]
    expected = (
        f"error: {code.name}: not with this token; "
        "pass a token that allows it with --token-file or BAKERY_CLIENT_TOKEN\n"
    )
    assert (1, "", expected) == run(*(photo if word == "PHOTO" else word for word in command), *ports)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["wait", "m", "-s", "86400", "--ca", "OTHER"],  # waiting does not help
            "the server's certificate is not trusted: unable to get local issuer certificate",
        ),
        (["status", "--ca", "CA"], "the connection was closed; does the server require a certificate?"),
    ],
    ids=["other authority", "no certificate"],
)
def test_a_failed_handshake_is_one_line_without_the_log_of_grpc(
    secured: SimpleNamespace, tls_files: TlsFiles, arguments: list[str], error: str
) -> None:
    files = {"CA": str(tls_files.ca), "OTHER": str(tls_files.other_ca)}
    command = [sys.executable, "-m", "savedmodel_bakery.client", *(files.get(word, word) for word in arguments)]
    done = subprocess.run([*command, "-t", f"grpcs://127.0.0.1:{secured.grpc}"], capture_output=True, text=True)
    expected = f"error: cannot connect to 127.0.0.1:{secured.grpc} over gRPC with TLS: {error}\n"
    assert (3, "", expected) == (done.returncode, done.stdout, done.stderr)
