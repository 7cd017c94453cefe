"""The limits of REST requests, and requests that end before they are answered."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPResponse, IncompleteRead
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from server_process import ServerProcess, free_port
from waiting import wait_until

from savedmodel_bakery.serving.access.access import Access
from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.call.call import Entrypoint
from savedmodel_bakery.serving.call.http import FindRoute, Request, Response, Route
from savedmodel_bakery.serving.models.registry import Registry
from savedmodel_bakery.serving.rest.rest_api import RestApi
from savedmodel_bakery.serving.rest.router import Router
from savedmodel_bakery.serving.rest.server import RestServer

CONNECTIONS = 8
MODEL = "/v1/models/half_plus_two"
POST = f"POST {MODEL}:predict HTTP/1.1\r\nHost: x\r\n"
BODY = b'{"instances": [4]}'


@pytest.fixture(scope="module")
def limited(half_plus_two: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with half_plus_two, and limits that are easily exceeded."""
    flags = (
        f"--model_base_path={half_plus_two}",
        "--model_name=half_plus_two",
        f"--max_connections={CONNECTIONS}",
        "--max_message_bytes=100000",
        "--max_header_bytes=2000",
        "--max_unpacked_bytes=200000",
        "--header_timeout_seconds=1",
        "--body_timeout_seconds=1",
        "--memory_budget_bytes=2000000",
    )
    with ServerProcess(*flags, log=tmp_path_factory.mktemp("limited") / "log") as server:
        yield server


def connect(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.rest_api_port), 30)


def send(server: ServerProcess, *parts: bytes) -> tuple[int, str, bool]:
    """Send bytes; return the status, the error, and whether the server closes the connection."""
    with connect(server) as connection:
        for part in parts:
            connection.sendall(part)
        return read(connection)


def read(connection: socket.socket) -> tuple[int, str, bool]:
    response = HTTPResponse(connection)
    response.begin()
    error = json.loads(response.read()).get("error", "")
    return response.status, error, response.getheader("connection") == "close"


def predict(server: ServerProcess, body: bytes = BODY, **headers: str) -> tuple[int, object]:
    response = requests.post(f"{server.url}{MODEL}:predict", data=body, headers=headers, timeout=30)
    return response.status_code, response.json()


TOO_LARGE = "bytes; at most 100000 are allowed (--max_message_bytes)"


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        pytest.param(
            [f"{POST}Content-Length: 100001\r\n\r\n".encode()], f"the request has 100001 {TOO_LARGE}", id="length"
        ),
        pytest.param(
            [f"{POST}Content-Length: 100001\r\nExpect: 100-continue\r\n\r\n".encode()],
            f"the request has 100001 {TOO_LARGE}",
            id="expect",
        ),
        pytest.param(
            [f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode(), *[b"2710\r\n" + b" " * 10_000 + b"\r\n"] * 12],
            TOO_LARGE,
            id="chunks",
        ),
        pytest.param(
            [f"{POST}A: {'a' * 2000}\r\n\r\n".encode()],
            "the headers of the request have more than 2000 bytes, which is the limit (--max_header_bytes)",
            id="header",
        ),
        pytest.param(
            [f"GET /{'a' * 2000} HTTP/1.1\r\n\r\n".encode()],
            "the headers of the request have more than 2000 bytes, which is the limit (--max_header_bytes)",
            id="target",
        ),
        pytest.param(
            [POST.encode()], "the headers of the request took longer than 1 s (--header_timeout_seconds)", id="headers"
        ),
        pytest.param([], "the headers of the request took longer than 1 s (--header_timeout_seconds)", id="silence"),
        pytest.param(
            [f"{POST}Content-Length: 18\r\n\r\n".encode(), b'{"inst'],
            "the body of the request took longer than 1 s (--body_timeout_seconds)",
            id="body",
        ),
    ],
)
def test_a_request_beyond_a_limit_is_rejected_and_its_connection_closed(
    limited: ServerProcess, parts: list[bytes], error: str
) -> None:
    status, message, closes = send(limited, *parts)
    assert (429, True) == (status, closes)
    assert message.endswith(error)


def test_headers_without_end_are_rejected(limited: ServerProcess) -> None:
    with connect(limited) as connection, suppress(ConnectionError):
        while True:
            connection.sendall(b"a" * 10_000)
    assert 200 == predict(limited)[0]


def test_a_body_of_the_largest_size_is_accepted(limited: ServerProcess) -> None:
    assert (200, {"predictions": [4.0]}) == predict(limited, BODY.ljust(100_000))


def test_a_request_that_needs_more_memory_than_there_is_is_rejected(limited: ServerProcess) -> None:
    status, response = predict(limited, b'{"instances": [' + b"[]," * 30_000 + b"1]}")
    assert 429 == status
    assert "--memory_budget_bytes" in str(response)
    status, response = predict(limited, gzip.compress(b" " * 10_000_000), **{"Content-Encoding": "gzip"})
    assert (400, {"error": "JSON Parse error: The document is empty"}) == (status, response)


def test_a_body_that_does_not_arrive_holds_no_memory(limited: ServerProcess) -> None:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS - 1):
            connection = stack.enter_context(connect(limited))
            connection.sendall(f"{POST}Content-Length: 100000\r\n\r\n".encode())
        assert (200, {"predictions": [4.0]}) == predict(limited, BODY.ljust(90_000))


def start(admission: Admission, find: FindRoute | None = None) -> tuple[int, RestServer]:
    """Start a server with one API, by default that of TensorFlow Serving without models; return its port and itself."""
    number = free_port()
    api = RestApi(Registry(), limits=admission.limits, check_method_names=False)
    router = Router([find or api.find], access=Access(), cors=False)
    server = RestServer(router, "127.0.0.1", number, admission, Entrypoint("REST", str), timeout_s=None)
    server.start()
    return number, server


LARGE_RESPONSE = 50_000_000
"""More bytes than the system keeps for a connection."""


def respond_with_much(_request: Request, context: RequestContext) -> Response:
    context.charge(LARGE_RESPONSE)
    return Response(200, bytes(LARGE_RESPONSE))


def test_a_response_holds_memory_until_it_has_been_read_or_took_too_long() -> None:
    memory = MemoryBudget(2 * LARGE_RESPONSE)
    admission = Admission(Limits(body_timeout_s=2.0), memory, turns=1)
    number, server = start(admission, lambda _: Route(respond_with_much))
    with socket.create_connection(("127.0.0.1", number), 30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(1, socket.MSG_PEEK)
        assert LARGE_RESPONSE == memory.held
        response = HTTPResponse(connection)
        response.begin()
        assert LARGE_RESPONSE == len(response.read())
        wait_until(lambda: memory.held == 0)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: memory.held > 0)
        wait_until(lambda: memory.held == 0)
        response = HTTPResponse(connection)
        response.begin()
        with pytest.raises((ConnectionResetError, IncompleteRead)):
            response.read()
    server.stop(5)


def test_a_body_beyond_the_nesting_limit_is_rejected(limited: ServerProcess) -> None:
    error = "the request nests more than 1000 JSON arrays and objects"
    assert (400, {"error": error}) == predict(limited, b'{"a": ' + b"[" * 1000 + b"]" * 1000 + b"}")


def test_connections_beyond_the_limit_are_rejected_until_others_end(limited: ServerProcess) -> None:
    request = f"GET {MODEL} HTTP/1.1\r\n\r\n".encode()
    with ExitStack() as stack:
        held = [stack.enter_context(connect(limited)) for _ in range(CONNECTIONS)]
        for connection in held:
            connection.sendall(b"GET ")
        status, error, _ = send(limited, request)
        assert (429, f"{CONNECTIONS} connections are open, which is the limit (--max_connections)") == (status, error)
        for connection in held:  # the header timeout closes them
            assert "--header_timeout_seconds" in read(connection)[1]
    assert 200 == send(limited, request)[0]


def test_a_new_connection_replaces_the_one_that_was_idle_for_longest(limited: ServerProcess) -> None:
    request = f"GET {MODEL} HTTP/1.1\r\n\r\n".encode()
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(limited)) for _ in range(CONNECTIONS)]
        for connection in idle:
            connection.sendall(request)
            assert 200 == read(connection)[0]
        assert 200 == send(limited, request)[0]
        assert b"" == idle[0].recv(1)
        idle[1].sendall(request)
        assert 200 == read(idle[1])[0]


def test_pipelined_requests_are_answered_in_order(limited: ServerProcess) -> None:
    def post(number: int) -> bytes:
        body = b'{"instances": [%d]}' % number
        return f"{POST}Content-Length: {len(body)}\r\n\r\n".encode() + body

    with connect(limited) as connection:
        connection.sendall(b"".join(map(post, range(5))))
        # Without a buffer, which would take a part of the next response with it.
        unbuffered: Any = SimpleNamespace(makefile=lambda mode: connection.makefile(mode, buffering=0))
        for number in range(5):
            response = HTTPResponse(unbuffered)
            response.begin()
            assert {"predictions": [number / 2 + 2]} == json.loads(response.read())


def test_a_body_is_asked_for_if_the_client_expects_that(limited: ServerProcess) -> None:
    with connect(limited) as connection:
        connection.sendall(f"{POST}Content-Length: {len(BODY)}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert b"HTTP/1.1 100 Continue\r\n\r\n" == connection.recv(100)
        connection.sendall(BODY)
        assert 200 == read(connection)[0]


LARGE = {
    "length": b"Content-Length: 70000\r\n\r\n",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n" + 7 * (b"2710\r\n" + b" " * 10_000 + b"\r\n"),
}


def post(path: str, rest: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n".encode() + rest


@pytest.mark.parametrize("large", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize(("path", "status"), [("/nosuch", 404), ("/v1/models/m:predit", 400), ("/v2/health/live", 405)])
def test_a_large_body_does_not_change_the_response_to_a_wrong_url(
    limited: ServerProcess, path: str, status: int, large: bytes
) -> None:
    responses = []
    for rest in (b"Content-Length: 0\r\n\r\n", large):
        with connect(limited) as connection:
            connection.sendall(post(path, rest))
            response = HTTPResponse(connection)
            response.begin()
            responses.append((response.status, response.read()))
    assert status == responses[0][0]
    assert responses[0] == responses[1]


@pytest.mark.parametrize("large", LARGE.values(), ids=LARGE)
def test_a_request_that_runs_no_model_may_have_a_small_body_only(limited: ServerProcess, large: bytes) -> None:
    status, error, _ = send(limited, post("/v2/repository/index", large))
    assert (429, "at most 65536 are allowed for one that runs no model") == (status, error.partition("; ")[2])


def test_a_body_is_charged_while_it_arrives() -> None:
    memory = MemoryBudget(1_000_000)
    admission = Admission(Limits(), memory, turns=1)
    number, server = start(admission)
    with ExitStack() as stack:
        for count in (1, 2, 3):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", number), 30))
            connection.sendall(f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode())
            connection.sendall(b"186a0\r\n" + b" " * 100_000)
            wait_until(lambda expected=count: 130_000 * expected < memory.held <= 200_000 * expected)
    wait_until(lambda: memory.held == 0)
    server.stop(5)


def test_pipelined_bodies_leave_no_memory_charged() -> None:
    memory = MemoryBudget(50_000_000)
    admission = Admission(Limits(), memory, turns=4)
    number, server = start(admission)
    small = f"{POST}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    large = f"{POST}Content-Length: 2000000\r\n\r\n".encode() + bytes(1_900_000)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", number), 30) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
            connection.sendall(small + small + large)
            wait_until(lambda: memory.held > 3_000_000)
    wait_until(lambda: memory.held == 0)
    server.stop(5)


@pytest.mark.parametrize("size", [5_000_000, 40_000_000], ids=["a window", "a piece"])
@pytest.mark.parametrize("is_chunked", [True, False], ids=["chunks", "length"])
def test_a_body_larger_than_a_window_or_a_piece_arrives_as_a_whole(
    server: ServerProcess, size: int, is_chunked: bool
) -> None:
    body = BODY[:-1].ljust(size) + BODY[-1:]
    with requests.Session() as session:
        for _ in range(2):  # on one connection
            chunks = (body[start : start + 70_000] for start in range(0, len(body), 70_000))
            response = session.post(f"{server.url}{MODEL}:predict", data=chunks if is_chunked else body, timeout=30)
            assert {"predictions": [5.0]} == response.json()


@pytest.mark.parametrize("after", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["alone", "another follows"])
def test_a_run_ends_when_its_client_disconnects(server: ServerProcess, after: bytes) -> None:
    steps = server.slow_steps("half_plus_two", 0.3) * 300
    body = json.dumps({"signature_name": "slow", "inputs": steps}).encode()
    with connect(server) as connection:
        connection.sendall(f"{POST}Content-Length: {len(body)}\r\n\r\n".encode() + body + after)
        server.wait_until_busy()
    server.wait_until_idle()
