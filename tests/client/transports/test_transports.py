"""What is particular about one transport, and the tables that map its errors."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import canned_models
import ml_dtypes
import numpy as np
import pytest

from savedmodel_bakery.client import (
    Client,
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    InvalidResponseError,
    RequestRefusedError,
)
from savedmodel_bakery.client.endpoints import Endpoint
from savedmodel_bakery.wire.status import Code

Connect = Callable[..., Client]

X = {"x": np.float32([1])}
JSON = "Content-Type: application/json\r\n"


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK], ids=lambda code: code.name)
def test_every_code_over_grpc_is_the_servers(peer: Any, code: Code) -> None:
    with (
        Client(port=peer.grpc_port, model=f"refuse_{code.name}") as asking,
        pytest.raises(ClientError) as caught,
    ):
        asking.predict(X)
    if code is Code.DEADLINE_EXCEEDED:
        assert (DeadlineExceededError, "refused: DEADLINE_EXCEEDED") == (caught.type, str(caught.value))
    else:
        assert (RequestRefusedError, code, f"refused: {code.name}") == (
            caught.type,
            caught.value.code,
            caught.value.message,
        )


# Where several codes share an HTTP status one of them stands for all.
FOLDED = {
    Code.UNKNOWN: Code.INTERNAL,
    Code.DATA_LOSS: Code.INTERNAL,
    Code.ALREADY_EXISTS: Code.ABORTED,
    Code.FAILED_PRECONDITION: Code.INVALID_ARGUMENT,
    Code.OUT_OF_RANGE: Code.INVALID_ARGUMENT,
}


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK], ids=lambda code: code.name)
def test_every_code_over_rest_is_told_by_the_http_status(peer: Any, code: Code) -> None:
    with (
        Client(transport="rest", rest_api_port=peer.rest_port, model=f"refuse_{code.name}") as asking,
        pytest.raises(ClientError) as caught,
    ):
        asking.predict(X)
    if code is Code.DEADLINE_EXCEEDED:
        assert (DeadlineExceededError, "refused: DEADLINE_EXCEEDED") == (caught.type, str(caught.value))
    else:
        expected = FOLDED.get(code, code)
        assert (RequestRefusedError, expected, f"refused: {code.name}") == (
            caught.type,
            caught.value.code,
            caught.value.message,
        )


def test_rest_fetches_the_metadata_once(peer: Any) -> None:
    with Client(transport="rest", rest_api_port=peer.rest_port, model="half_plus_two") as asking:
        before = peer.requests
        asking.predict(X)
        asking.predict(X)
    assert 3 == peer.requests - before


def test_rest_fetches_the_metadata_anew_when_a_new_version_answers_otherwise(
    peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(transport="rest", rest_api_port=peer.rest_port, model="half_plus_two") as asking:
        asking.predict(X)
        monkeypatch.setitem(canned_models.MODELS, "half_plus_two", canned_models.MODELS["types"])
        assert canned_models.TYPES.keys() == asking.predict(X).outputs.keys()


def test_metadata_are_fetched_anew_when_another_version_answers(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the new version wants is known after at most one question to it."""
    asking = connect("half_plus_two")
    asking.predict(X)
    doubled = canned_models.Model(
        {"serving_default": canned_models.signature_of({"z": "DT_FLOAT"}, {"y": "DT_FLOAT"})}, None
    )
    monkeypatch.setitem(canned_models.MODELS, "half_plus_two", doubled)
    with pytest.raises(RequestRefusedError, match=r'input "z" is missing; .* takes z: float32'):
        asking.predict({"x": np.float32([1]), "q": 1})


def test_a_misfit_asks_for_the_metadata_once_more_and_no_more(connect: Connect, peer: Any) -> None:
    asking = connect("half_plus_two")
    asking.predict(X)
    before = peer.requests
    with pytest.raises(RequestRefusedError, match="takes x: float32"):
        asking.predict({"x": "one"})
    assert 1 == peer.requests - before


def test_rest_refuses_what_json_does_not_carry_before_it_is_sent(peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    half = canned_models.Model(
        {"serving_default": canned_models.signature_of({"x": "DT_BFLOAT16"}, {"y": "DT_FLOAT"})}, None
    )
    monkeypatch.setitem(canned_models.MODELS, "half", half)
    with (
        Client(transport="rest", rest_api_port=peer.rest_port, model="half") as asking,
        pytest.raises(RequestRefusedError, match=r'^UNIMPLEMENTED: input "x" is bfloat16') as caught,
    ):
        asking.predict({"x": np.zeros(1, ml_dtypes.bfloat16)})
    assert caught.value.__cause__ is not None


def test_an_array_that_is_no_tensor_is_refused(connect: Connect) -> None:
    with pytest.raises(RequestRefusedError, match=r"^INVALID_ARGUMENT: cannot send an array of datetime64\[D\]"):
        connect().predict({"x": np.array(["2026-01-01"], "datetime64[D]")})


def test_grpc_connects_again_when_the_server_is_up(peer: Any, closed_port: int) -> None:
    """A channel that backs off fails calls without a connection attempt."""
    with Client(port=closed_port, model="half_plus_two") as client:
        with pytest.raises(ConnectionFailedError):
            client.status()
        with peer.serve_grpc(closed_port):
            versions = None
            while versions is None:  # until the pause between two attempts is over
                with contextlib.suppress(ConnectionFailedError):
                    versions = client.status()
            assert 3 == versions[0].version


@pytest.fixture
def answering() -> Iterator[Callable[[str], int]]:
    """Listen on a free port and give every request the same bytes, or none and silence."""
    listeners = []
    threads = []

    def listen(answer: str) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer.encode())

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return listener.getsockname()[1]

    yield listen
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        pytest.param(
            "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<h1>",
            InvalidResponseError,
            '/v1/models/m responded HTTP 404 with text/html; a model server responds {"error": …}',
            id="page",
        ),
        pytest.param(
            "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
            InvalidResponseError,
            '/v1/models/m responded HTTP 302 with no content type; a model server responds {"error": …}',
            id="redirect",
        ),
        pytest.param(
            f"HTTP/1.1 418 Teapot\r\n{JSON}Content-Length: 14\r\n\r\n" + '{"error": "t"}',
            RequestRefusedError,
            "UNKNOWN: t",
            id="status of no code",
        ),
        pytest.param(
            f"HTTP/1.1 200 OK\r\n{JSON}Content-Length: 2\r\n\r\n[]",
            InvalidResponseError,
            "/v1/models/m, 2 bytes, is not a JSON object",
            id="no object",
        ),
        pytest.param(
            f"HTTP/1.1 200 OK\r\n{JSON}Content-Length: 2\r\n\r\n" + "{}",
            InvalidResponseError,
            "the status is not a valid GetModelStatusResponse: KeyError('model_version_status')",
            id="other object",
        ),
        pytest.param("", ConnectionFailedError, "over REST; is a model server running there?", id="hangs up"),
        pytest.param("SSH-2.0\r\n", ConnectionFailedError, "is a model server running there?", id="no HTTP"),
    ],
)
def test_rest_answers_that_are_not_the_apis(
    answering: Callable[[str], int], answer: str, error: type[ClientError], message: str
) -> None:
    with (
        Client(transport="rest", rest_api_port=answering(answer), model="m") as asking,
        pytest.raises(ClientError) as caught,
    ):
        asking.status()
    assert error is caught.type
    assert str(caught.value).endswith(message)


def test_rest_body_that_stops_coming_is_deadline_exceeded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
                done.wait(10)

        thread = threading.Thread(target=serve)
        thread.start()
        with (
            Client(transport="rest", rest_api_port=port, timeout_s=0.2) as asking,
            pytest.raises(DeadlineExceededError, match=r"over REST within 0\.2 s$"),
        ):
            asking.status()
        done.set()
        thread.join()


def test_grpc_asked_of_an_http_server_is_no_connection(answering: Callable[[str], int]) -> None:
    port = answering("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    with Client(port=port) as asking, pytest.raises(ConnectionFailedError, match="over gRPC; is a model server"):
        asking.status()


def test_grpc_asked_of_a_mute_listener_is_no_connection() -> None:
    """No HTTP/2 connection ever comes about, so it is not the model that is slow."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Client(port=listener.getsockname()[1], timeout_s=0.3) as asking,
        pytest.raises(ConnectionFailedError),
    ):
        asking.status()


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("models.example", "models.example:8500"),
        ("models.example:80", "models.example:80"),
        ("10.0.0.1:1", "10.0.0.1:1"),
        ("::1", "[::1]:8500"),
        ("[::1]", "[::1]:8500"),
        ("[::1]:80", "[::1]:80"),
    ],
)
def test_a_targets_own_port_wins(target: str, address: str) -> None:
    assert address == Endpoint.parse(target, 8500, "gRPC").address


@pytest.mark.parametrize(
    "target",
    [
        "",
        "a b",
        "http://a",
        "a/b",
        "a:",
        "a:b",
        ":80",
        "[::1",
        "[::1]x",
        "u@a",
        "a:0",
        "a..b",
        "a" * 64,
        "\udc80",
    ],
    ids=ascii,
)
def test_a_target_that_is_no_address_is_a_value_error(target: str) -> None:
    with pytest.raises(ValueError, match=r"invalid target|invalid port"):
        Endpoint.parse(target, 8500, "gRPC")
