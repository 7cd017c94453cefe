"""Which calls are repeated, after which pauses, when a client gives up, and what it says then."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from canned_server import Peer

from savedmodel_bakery import (
    AsyncClient,
    Client,
    ClientError,
    ConnectionFailedError,
    RequestRefusedError,
    Tls,
    TlsHandshakeError,
)
from savedmodel_bakery.client.calls import ModelSpec, Status
from savedmodel_bakery.client.servers import parse_server
from savedmodel_bakery.client.transports import create_transport, failures
from savedmodel_bakery.client.transports.failures import connecting_failed
from savedmodel_bakery.wire.status import Code, StatusError

TIMEOUT_S = 30.0


@pytest.fixture(params=["blocking", "asyncio"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, list[float]]]:
    """Send a call that fails with the given errors first; return its result or error, and the pauses."""
    pauses: list[float] = []
    sleep_really, thread = time.sleep, threading.current_thread()

    def sleep_blocking(seconds: float) -> None:
        if threading.current_thread() is thread:
            pauses.append(seconds)
        else:  # a server of another test
            sleep_really(seconds)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    def send_blocking(send: Callable[[float], str]) -> str:
        monkeypatch.setattr(time, "sleep", sleep_blocking)
        return failures.send_with_retries(send, end_s=time.monotonic() + TIMEOUT_S)

    async def send_async(send: Callable[[float], str]) -> str:
        async def attempt(timeout_s: float) -> str:
            return send(timeout_s)

        monkeypatch.setattr(asyncio, "sleep", sleep)
        return await failures.send_with_retries_async(attempt, end_s=time.monotonic() + TIMEOUT_S)

    def run(errors: list[ClientError]) -> tuple[Any, list[float]]:
        remaining = iter(errors)

        def send(timeout_s: float) -> str:
            assert 0 < timeout_s <= TIMEOUT_S
            for error in remaining:
                raise error
            return "result"

        try:
            result = send_blocking(send) if request.param == "blocking" else asyncio.run(send_async(send))
        except ClientError as error:
            return error, pauses
        return result, pauses

    return run


def refused(code: Code, retry_after_s: float | None = None) -> RequestRefusedError:
    return RequestRefusedError(code, "not now", retry_after_s=retry_after_s)


@pytest.mark.parametrize(
    ("errors", "pauses"),
    [
        pytest.param([refused(Code.RESOURCE_EXHAUSTED, 5)], [5], id="overloaded"),
        pytest.param([refused(Code.UNAVAILABLE, 2.5)], [2.5], id="away for a stated time"),
        pytest.param([refused(Code.RESOURCE_EXHAUSTED, 1)] * 9, [1] * 9, id="overloaded for a while"),
        pytest.param([refused(Code.RESOURCE_EXHAUSTED, 0)], [0.1], id="no hammering"),
    ],
)
def test_the_pause_is_the_stated_one(run: Any, errors: list[ClientError], pauses: list[float]) -> None:
    assert ("result", pauses) == run(errors)


@pytest.mark.parametrize(
    "error", [refused(Code.UNAVAILABLE), refused(Code.CANCELLED), ConnectionFailedError("no connection")], ids=repr
)
def test_without_a_stated_time_there_are_three_growing_pauses(run: Any, error: ClientError) -> None:
    result, pauses = run([error] * 3)
    assert ("result", 3) == (result, len(pauses))
    pauses.clear()
    result, pauses = run([error] * 9)
    assert result is error
    assert [True, True, True] == [0.1 * 2**n <= pause < 0.1 * 2**n + 0.1 for n, pause in enumerate(pauses)]


def test_while_all_threads_are_busy_pauses_grow_up_to_a_limit(run: Any) -> None:
    result, pauses = run([RequestRefusedError(Code.RESOURCE_EXHAUSTED, "Server Threadpool Exhausted")] * 9)
    assert ("result", 9) == (result, len(pauses))
    assert all(
        least <= pause < least + 0.1 for least, pause in zip([0.1, 0.2, 0.4, 0.8, 1.6, *[2] * 4], pauses, strict=True)
    )


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(refused(Code.RESOURCE_EXHAUSTED, TIMEOUT_S), id="after the time limit"),
        pytest.param(refused(Code.UNAVAILABLE, math.inf), id="never"),
        pytest.param(refused(Code.RESOURCE_EXHAUSTED), id="too large"),
        pytest.param(refused(Code.INTERNAL), id="broken"),
        pytest.param(TlsHandshakeError("expired"), id="TLS"),
    ],
)
def test_other_errors_are_raised_at_once(run: Any, error: ClientError) -> None:
    assert (error, []) == run([error])


@pytest.mark.parametrize(
    ("metadata", "code", "expected"),
    [
        ({"retry-after": "2"}, Code.RESOURCE_EXHAUSTED, 2),
        ({"retry-after": "0.25"}, Code.UNAVAILABLE, 0.25),
        ({"retry-after": "2"}, Code.INVALID_ARGUMENT, None),
        ({"retry-after": "soon"}, Code.UNAVAILABLE, None),
        ({"retry-after": "nan"}, Code.UNAVAILABLE, None),
        ({"retry-after": b"2"}, Code.UNAVAILABLE, None),
        ({}, Code.UNAVAILABLE, None),
        ({"grpc-retry-pushback-ms": "1500", "retry-after": "9"}, Code.UNAVAILABLE, 1.5),
        ({"grpc-retry-pushback-ms": "-1", "retry-after": "9"}, Code.UNAVAILABLE, math.inf),
        ({"grpc-retry-pushback-ms": "x"}, Code.UNAVAILABLE, math.inf),
        ({"grpc-retry-pushback-ms": "9" * 5000}, Code.UNAVAILABLE, math.inf),
    ],
)
def test_the_time_that_a_grpc_server_states(metadata: dict[str, Any], code: Code, expected: float | None) -> None:
    assert expected == failures.pause_after(metadata.items(), code)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"transport": "grpc"}, "HTTP/1.1, as REST ports do; the default port of gRPC is 8500"),
        ({"transport": "rest"}, "HTTP/2, as gRPC ports do; the default port of REST is 8501"),
        ({"transport": "v2"}, "HTTP/2, as gRPC ports do; the default port of v2 (HTTP) is 8501"),
    ],
)
def test_the_port_of_the_other_protocol_is_recognised(peer: Peer, options: dict[str, Any], advice: str) -> None:
    ports = {"port": peer.rest_port, "rest_api_port": peer.grpc_port}
    with Client(model="half_plus_two", **ports, **options) as client, pytest.raises(ConnectionFailedError) as caught:
        client.status()
    assert str(caught.value).endswith(f": this port answers in {advice}")


@pytest.fixture(params=["grpc", "rest", "asyncio"])
def get_status(request: pytest.FixtureRequest, peer: Peer) -> Callable[[], Any]:
    """Get the status with each client."""

    async def send() -> Any:
        async with AsyncClient(port=peer.grpc_port, model="half_plus_two") as client:
            return await client.status()

    def get_blocking() -> Any:
        ports = {"grpc": {"port": peer.grpc_port}, "rest": {"rest_api_port": peer.rest_port}}[request.param]
        with Client(transport=request.param, model="half_plus_two", **ports) as client:
            return client.status()

    return (lambda: asyncio.run(send())) if request.param == "asyncio" else get_blocking


@pytest.fixture
def refuse(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[int]]]:
    """Let the server refuse a number of requests, with headers; the list counts all requests."""
    status_of = peer.status

    def refuse(times: int, code: Code, message: str = "overloaded", **headers: str) -> list[int]:
        requests: list[int] = []

        def status(*arguments: Any) -> Any:
            requests.append(1)
            if len(requests) <= times:
                raise StatusError(code, message)
            return status_of(*arguments)

        monkeypatch.setattr(peer, "status", status)
        monkeypatch.setattr(peer, "error_headers", {name.replace("_", "-"): text for name, text in headers.items()})
        return requests

    return refuse


@pytest.mark.parametrize("code", [Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE], ids=lambda code: code.name)
def test_a_client_tries_again_when_an_overloaded_server_says(
    get_status: Callable[[], Any], refuse: Any, code: Code
) -> None:
    requests = refuse(2, code, retry_after="0")
    assert 3 == get_status()[0].version
    assert 3 == len(requests)


def test_a_server_without_free_threads_is_explained(peer: Peer, refuse: Any) -> None:
    refuse(1, Code.RESOURCE_EXHAUSTED, "Server Threadpool Exhausted")
    server = parse_server("127.0.0.1", transport="grpc", port=peer.grpc_port)
    prepared = create_transport(server, timeout_s=TIMEOUT_S, for_load=True)
    with pytest.raises(RequestRefusedError, match=r"too many calls at once .* --grpc_max_threads"):
        prepared.prepare(Status(ModelSpec("half_plus_two")))()
    prepared.close()


def test_a_time_after_the_limit_is_part_of_the_error(get_status: Callable[[], Any], refuse: Any) -> None:
    requests = refuse(9, Code.RESOURCE_EXHAUSTED, retry_after="31")
    with pytest.raises(RequestRefusedError, match="RESOURCE_EXHAUSTED: overloaded") as caught:
        get_status()
    assert (1, 31) == (len(requests), caught.value.retry_after_s)


@pytest.mark.parametrize(
    ("header", "attempts"),
    [("Wed, 21 Oct 2015 07:28:00 GMT", 2), ("Wed, 21 Oct 2155 07:28:00 GMT", 1), ("soon", 1), ("9" * 5000, 1)],
    ids=["past", "future", "no time", "too many digits"],
)
def test_over_rest_the_time_may_be_a_date(peer: Peer, refuse: Any, header: str, attempts: int) -> None:
    requests = refuse(1, Code.RESOURCE_EXHAUSTED, retry_after=header)
    with Client(transport="rest", rest_api_port=peer.rest_port, model="half_plus_two") as client:
        if attempts == 1:
            with pytest.raises(RequestRefusedError):
                client.status()
        else:
            client.status()
    assert attempts == len(requests)


def test_a_load_test_never_tries_again(peer: Peer, transport: str, refuse: Any) -> None:
    requests = refuse(9, Code.UNAVAILABLE, retry_after="0")
    server = parse_server(
        "127.0.0.1",
        transport=transport,
        **{"grpc": {"port": peer.grpc_port}, "rest": {"rest_api_port": peer.rest_port}}[transport],
    )
    prepared = create_transport(server, timeout_s=TIMEOUT_S, for_load=True)
    with pytest.raises(RequestRefusedError, match="UNAVAILABLE: overloaded"):
        prepared.prepare(Status(ModelSpec("half_plus_two")))()
    prepared.close()
    assert 1 == len(requests)


WITHOUT = "cannot connect to a:8501 over REST"
WITH = f"{WITHOUT} with TLS"


@pytest.mark.parametrize(
    ("detail", "sentence"),
    [
        ("EOF occurred in violation of protocol (_ssl.c:2427)", f"{WITH}: the connection was closed; does the server"),
        ("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred", f"{WITH}: the connection was closed; does the server"),
        ("[Errno 104] Connection reset by peer", f"{WITH}: the connection was closed; does the server"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13", f"{WITH}: the server requires a client certificate"),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert", f"{WITH}: the server rejects the client's certificate"),
        ("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3", f"{WITH}: the server rejects the client's certificate"),
        ("[SSL] record layer failure (_ssl.c:1000)", f"{WITH}: the server does not use TLS on this port"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)",
            f"{WITH}: the server's certificate is not trusted: self-signed certificate",
        ),
        (
            "certificate verify failed: Hostname mismatch, certificate is not valid for 'a'. (_ssl.c:1006)",
            f"{WITH}: the server's certificate is not valid for a",
        ),
        ("[SSL: NO_CIPHERS_AVAILABLE] no ciphers", f"{WITH}: the handshake failed: [SSL: NO_CIPHERS_AVAILABLE] no"),
        ("[Errno 111] Connection refused", f"{WITHOUT}; is a model server running there?"),
    ],
)
def test_a_failed_connection_with_tls_is_explained(detail: str, sentence: str) -> None:
    error = connecting_failed(parse_server("a", transport="rest", tls=Tls()), detail)
    assert str(error).startswith(sentence)


@pytest.mark.parametrize(
    ("detail", "sentence"),
    [
        ("RemoteDisconnected('Remote end closed connection')", ": the connection was closed; if the server requires"),
        ("[Errno 111] Connection refused", "; is a model server running there?"),
    ],
)
def test_a_failed_connection_without_tls_is_explained(detail: str, sentence: str) -> None:
    error = connecting_failed(parse_server("a", transport="rest"), detail)
    assert str(error).startswith(f"{WITHOUT}{sentence}")
