"""Explains why calls fail, and repeats them, the same for all transports. Must not import gRPC or HTTP.

All calls of `client.calls` are idempotent. A call that cannot reach the server, or gets UNAVAILABLE or CANCELLED, is
repeated up to three times after growing pauses: a server that shuts down sends CANCELLED for calls that it has not
finished. If the server states a time after which to try again, that is the pause, and the number of attempts is not
limited; nor is it if all threads of the server are busy. No attempt starts after the time limit of the call.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from savedmodel_bakery.client.calls import Result
from savedmodel_bakery.client.servers import Endpoint, Server
from savedmodel_bakery.errors import (
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    RequestRefusedError,
    TlsHandshakeError,
)
from savedmodel_bakery.wire.status import Code

OVERLOADED = (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE)
"""The codes with which a server may state a time after which to try again."""

SHUTTING_DOWN = (Code.UNAVAILABLE, Code.CANCELLED)
"""The codes of a server that restarts; it sends CANCELLED for unfinished calls when it shuts down."""

THREADS_BUSY = "Server Threadpool Exhausted"
"""What a gRPC server in C++, such as tensorflow_model_server, says with RESOURCE_EXHAUSTED if all its threads are busy
(github.com/grpc/grpc/blob/master/src/cpp/server/server_cc.cc)."""

MAX_ATTEMPTS = 4
_MIN_PAUSE_S = 0.1
_MAX_PAUSE_S = 2.0
_MIN_TIMEOUT_S = 0.001

# The spellings of gRPC's BoringSSL, of OpenSSL, and of gRPC itself; the first that matches counts.
_HANDSHAKE_ERRORS = {
    r"Hostname Verification Check|Hostname mismatch|IP address mismatch": (
        "the server's certificate is not valid for {host}"
    ),
    r"CERTIFICATE_VERIFY_FAILED\W+(?:certificate verify failed: )?(?P<reason>[^:(]*[^:(\s])": (
        "the server's certificate is not trusted: {reason}"
    ),
    r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|record layer failure|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST": (
        "the server does not use TLS on this port"
    ),
    r"ALERT_CERTIFICATE_REQUIRED": "the server requires a client certificate",
    r"ALERT_(?:UNKNOWN_CA|BAD_CERTIFICATE|CERTIFICATE_\w+|DECRYPT_ERROR)": (
        "the server rejects the client's certificate"
    ),
}
_CLOSED = re.compile(r"(?i)socket closed|connection reset|RemoteDisconnected|broken pipe|FD shutdown|EOF")
# gRPC's text about a response in HTTP/1.1, and http.client's about the first frame of HTTP/2, SETTINGS.
_OTHER_PROTOCOL = re.compile(r"Failed parsing HTTP/2|http1\.x server|BadStatusLine\([\"']\\x00\\x00.{1,4}\\x04")
_HANDSHAKE = re.compile(r"handshake failed|SSL")


def connecting_failed(server: Server, detail: str) -> ConnectionFailedError:
    """Return the error for a connection that could not be made; `detail` is the text of the library's error."""
    where = _describe(server.endpoints)
    if server.tls is not None:
        reason = _handshake_error(detail, server.endpoints[0].host)
        if reason is not None:
            return TlsHandshakeError(f"cannot connect to {where} with TLS: {reason}")
    if server.tls is None and _OTHER_PROTOCOL.search(detail):
        spoken, port = ("HTTP/1.1, as REST ports do", 8500) if server.uses_grpc else ("HTTP/2, as gRPC ports do", 8501)
        return ConnectionFailedError(
            f"cannot connect to {where}: this port answers in {spoken}; the default port of "
            f"{server.endpoints[0].protocol} is {port}"
        )
    if not _CLOSED.search(detail):
        return ConnectionFailedError(f"cannot connect to {where}; is a model server running there?")
    if server.tls is not None:
        return ConnectionFailedError(
            f"cannot connect to {where} with TLS: the connection was closed; does the server require a certificate?"
        )
    scheme = "grpcs" if server.uses_grpc else "https"
    return ConnectionFailedError(
        f"cannot connect to {where}: the connection was closed; if the server requires TLS, use {scheme}://"
    )


def name_not_resolved(endpoints: Sequence[Endpoint]) -> ConnectionFailedError:
    """Return the error for a host name that has no address."""
    return ConnectionFailedError(f"cannot connect to {_describe(endpoints)}: the host name does not resolve")


def deadline_exceeded(endpoints: Sequence[Endpoint], timeout_s: float) -> DeadlineExceededError:
    """Return the error for a response that did not arrive within this client's timeout."""
    return DeadlineExceededError(f"no response from {_describe(endpoints)} within {timeout_s:g} s")


def _handshake_error(detail: str, host: str) -> str | None:
    """Return why a TLS handshake failed; None if the text is not about one."""
    for pattern, text in _HANDSHAKE_ERRORS.items():
        if match := re.search(pattern, detail):
            return text.format(host=host, **match.groupdict())
    if _HANDSHAKE.search(detail) and not _CLOSED.search(detail):
        return f"the handshake failed: {detail}"
    return None


def _describe(endpoints: Sequence[Endpoint]) -> str:
    return f"{', '.join(endpoint.address for endpoint in endpoints)} over {endpoints[0].protocol}"


def send_with_retries(send: Callable[[float], Result], *, end_s: float) -> Result:
    """Return the result of `send`, which is called with a time limit in seconds, until `end_s` (monotonic)."""
    attempts = 0
    while True:
        attempts += 1
        try:
            return send(max(end_s - time.monotonic(), _MIN_TIMEOUT_S))
        except ClientError as exc:
            pause_s = _pause_s(exc, attempts)
            if time.monotonic() + pause_s >= end_s:
                raise
        time.sleep(pause_s)


async def send_with_retries_async(send: Callable[[float], Awaitable[Result]], *, end_s: float) -> Result:
    """Do the same as `send_with_retries` without blocking the event loop."""
    import asyncio  # slow to import

    attempts = 0
    while True:
        attempts += 1
        try:
            return await send(max(end_s - time.monotonic(), _MIN_TIMEOUT_S))
        except ClientError as exc:
            pause_s = _pause_s(exc, attempts)
            if time.monotonic() + pause_s >= end_s:
                raise
        await asyncio.sleep(pause_s)


def pause_after(metadata: Iterable[tuple[str, str | bytes]], code: Code) -> float | None:
    """Return the seconds after which a gRPC server allows another attempt, from its trailing metadata, if stated.

    `grpc-retry-pushback-ms` is gRPC's own (github.com/grpc/proposal/blob/master/A6-client-retries.md, "Pushback"): a
    value that is negative or not a number forbids another attempt, `math.inf`. `retry-after` is in seconds, as HTTP's.
    """
    values = {key: value if isinstance(value, str) else "" for key, value in metadata}
    if code not in OVERLOADED:
        return None
    if (pushback := values.get("grpc-retry-pushback-ms")) is not None:
        return float(pushback) / 1000 if re.fullmatch(r"\d+", pushback, re.ASCII) else math.inf
    retry_after = values.get("retry-after", "")
    return float(retry_after) if re.fullmatch(r"\d+(\.\d+)?", retry_after, re.ASCII) else None


def is_away(error: ClientError) -> bool:
    """Return whether the server cannot be reached at the moment, or restarts."""
    if isinstance(error, RequestRefusedError):
        return error.code in SHUTTING_DOWN
    return isinstance(error, ConnectionFailedError) and not isinstance(error, TlsHandshakeError)


def _pause_s(error: ClientError, attempts: int) -> float:
    """Return the time in seconds until another attempt; infinite if there must be none."""
    if isinstance(error, RequestRefusedError) and error.retry_after_s is not None:
        return max(error.retry_after_s, _MIN_PAUSE_S)
    is_busy = isinstance(error, RequestRefusedError) and error.message.startswith(THREADS_BUSY)
    if not is_busy and (not is_away(error) or attempts >= MAX_ATTEMPTS):
        return math.inf
    return min(_MIN_PAUSE_S * 2.0 ** (attempts - 1), _MAX_PAUSE_S) + random.uniform(0, _MIN_PAUSE_S / 2)
