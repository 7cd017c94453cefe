"""`bakery wait` over gRPC and REST: what it prints, and its exit codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from canned_server import Peer

from savedmodel_bakery.client.commands import inspection as module
from savedmodel_bakery.exits import run_command

Wait = Callable[..., tuple[int, str, str]]


@pytest.fixture
def wait(capsys: pytest.CaptureFixture[str], transport: str) -> Wait:
    """Run the command; returns its exit code, stdout and stderr."""

    def wait(*arguments: object) -> tuple[int, str, str]:
        code = run_command(module.wait, ["--format", transport, *map(str, arguments)])
        return code, *capsys.readouterr()

    return wait


@pytest.fixture
def ports(peer: Peer) -> list[object]:
    """The options that select the canned server."""
    return ["--port", peer.grpc_port, "--rest-api-port", peer.rest_port]


@pytest.mark.parametrize(
    ("options", "line"),
    [([], "3\tAVAILABLE\n"), (["--version", 3], "3\tAVAILABLE\n"), (["--label", "stable"], "2\tAVAILABLE\n")],
    ids=["any", "version", "label"],
)
def test_an_available_version_is_printed(wait: Wait, ports: list[object], options: list[object], line: str) -> None:
    assert (0, line, "") == wait("half_plus_two", *options, *ports)
    assert (0, line, "") == wait("-m", "half_plus_two", *options, *ports)


def test_one_model_is_named(wait: Wait) -> None:
    assert wait()[2].endswith("missing MODEL, the name of the model to wait for\n")
    assert wait("flowers", "-m", "roses")[2].endswith("two models, flowers and roses: pass MODEL or -m MODEL\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["half_plus_two", "--version", 2],
            'model "half_plus_two" version 2 is not AVAILABLE after 0.3 s: 2 END NOT_FOUND: no \\x1bsaved_model.pb',
        ),
        (
            ["half_plus_two", "--version", 9],
            'model "half_plus_two" version 9 is not AVAILABLE after 0.3 s: the server knows no version',
        ),
        (
            ["half_plus_two", "--label", "new"],
            'model "half_plus_two" label "new" is not AVAILABLE after 0.3 s: '
            "INVALID_ARGUMENT: Unrecognized servable version label: new",
        ),
        (
            ["flowers"],
            'model "flowers" is not AVAILABLE after 0.3 s: NOT_FOUND: Servable not found for request: Latest(flowers)',
        ),
    ],
    ids=["failed version", "unknown version", "unknown label", "unknown model"],
)
def test_a_version_that_is_not_available_in_time_is_exit_1_with_its_last_state(
    wait: Wait, ports: list[object], arguments: list[object], error: str
) -> None:
    assert (1, "", f"error: {error}\n") == wait(*arguments, *ports, "--timeout-seconds", 0.3)


def test_no_server_in_time_is_exit_3(wait: Wait, closed_port: int, transport: str) -> None:
    name = {"grpc": "gRPC", "rest": "REST"}[transport]
    expected = f"error: cannot connect to 127.0.0.1:{closed_port} over {name}; is a model server running there?\n"
    assert (3, "", expected) == wait("flowers", "-t", f"127.0.0.1:{closed_port}", "--timeout-seconds", 0.3)


def test_an_unexpected_refusal_ends_it_at_once(wait: Wait, ports: list[object]) -> None:
    code, out, err = wait("refuse_PERMISSION_DENIED", *ports)
    assert (1, "") == (code, out)
    assert (
        "error: PERMISSION_DENIED: refused: PERMISSION_DENIED; "
        "pass a token that allows it with --token-file or BAKERY_CLIENT_TOKEN\n"
    ) == err


def test_it_waits_for_a_version_that_is_loading(
    wait: Wait, ports: list[object], peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter(["START", "LOADING", "AVAILABLE"])

    def status(_name: str, version: int | None) -> dict[str, Any]:
        row = {"version": str(version), "state": next(states), "status": {"error_code": "OK", "error_message": ""}}
        return {"model_version_status": [row]}

    monkeypatch.setattr(peer, "status", status)
    assert (0, "4\tAVAILABLE\n", "") == wait("half_plus_two", "--version", 4, *ports)
    assert [] == list(states)


def test_it_waits_for_a_server_that_starts(
    wait: Wait, peer: Peer, transport: str, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt finds a port on which nothing listens, the next one the server."""
    targets = iter([closed_port])
    listening = {"grpc": peer.grpc_port, "rest": peer.rest_port}[transport]
    opened = module.open_client
    monkeypatch.setattr(
        module,
        "open_client",
        lambda context, **options: opened(context, target=f"127.0.0.1:{next(targets, listening)}", **options),
    )
    assert (0, "3\tAVAILABLE\n", "") == wait("half_plus_two")
    assert [] == list(targets)
