"""HTTP/1.1 on one connection: what uvicorn's protocol lacks, and limits of size and time. Does not know the URLs."""

from __future__ import annotations

import asyncio
import re
import select
import socket
from collections.abc import Callable, Iterable, MutableMapping
from http import HTTPStatus
from itertools import chain
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from savedmodel_bakery.serving.admission.limits import RETRY_AFTER_S, Limits, OverloadError
from savedmodel_bakery.serving.http.error_responses import error_response, page
from savedmodel_bakery.serving.http.messages import Response
from savedmodel_bakery.serving.rest.router import KNOWN_METHODS
from savedmodel_bakery.serving.telemetry.calls import count_rejection

_LINGER_S = 2.0
_HEAD_BYTES = 2**16
_MAX_HEADERS = 256
# A body stands still if less than this has arrived for so long.
_MOVED_BYTES, _STILL_S = 2**16, 5.0
_UPGRADE_HEADER = re.compile(rb"^upgrade:[^\r\n]*\r\n", re.IGNORECASE | re.MULTILINE)
# A body may come in this many parts, however small; on average, all of a longer one must have this size. Each takes a
# Python call, and a connection may deliver a million of them before others have their turn.
_FREE_PARTS, _MIN_PART_BYTES = 20_000, 8
_MAX_PIPELINED = 16  # requests that wait on a connection for the response to an earlier one; each takes a few kilobytes
_REQUEST_LINE = re.compile(rb"(\S+) \S+ HTTP/1\.[01]\r?\n")


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 that ignores the header Upgrade (RFC 9110, 7.8 allows that) and keeps the target as it was sent.

    Java's HTTP client offers an upgrade to HTTP/2 with every plain request, for which the parser discards the body.

    Args:
        arguments: of uvicorn.
        limits: of each connection and of their number.
        idle: the connections of the server that wait for a request after an earlier one, the longest first.

    Attributes:
        on_disconnect: is called when the connection is lost.
        body_error: why the application has to reject the request instead of waiting for more of its body; or None.
    """

    def __init__(self, *arguments: Any, limits: Limits, idle: dict[Protocol, None], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits
        self._idle = idle
        self._received = b""
        self._header_bytes = 0
        self._receives_headers = True
        self._receives_since: float | None = None
        self._is_closing = False
        self._is_received = False
        self._take_body: Callable[[int], bool] | None = None
        self._body_bytes = self._counted_bytes = self._parts = self._framing_bytes = 0
        self._moved_at = 0.0
        self.on_disconnect: Callable[[], None] | None = None
        self.body_error: OverloadError | None = None

    @property
    def is_received(self) -> bool:
        """Whether the request that is being answered has been received as a whole; another one may follow it."""
        return self._is_received or bool(self.pipeline)

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to receive; close the connection if there are too many."""
        is_full = len(self.connections) >= self._limits.connections
        super().connection_made(transport)
        self._receives_since = self.loop.time()
        if is_full and not close_longest_idle(self._idle):
            error = OverloadError(
                f"{self._limits.connections} connections are open, which is the limit (--max_connections)",
                RETRY_AFTER_S,
                limit="max_connections",
            )
            self._is_closing = True
            self.transport.write(_encode(_rejection(error)))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the current request."""
        self._idle.pop(self, None)
        super().connection_lost(exc)
        if self.on_disconnect:
            self.on_disconnect()

    def data_received(self, data: bytes) -> None:
        """Process received bytes. Clients that offer an upgrade send all headers at once."""
        if self._is_closing:
            return
        self._idle.pop(self, None)
        if self._receives_headers:
            self._header_bytes += len(data)
            if self._receives_since is None:
                self._receives_since = self.loop.time()
            self._received = data[:_HEAD_BYTES]
            if b"pgrade" in self._received and _REQUEST_LINE.match(data):
                head, end, body = data.partition(b"\r\n\r\n")
                data = _UPGRADE_HEADER.sub(b"", head + b"\r\n")[:-2] + end + body
        self._framing_bytes += len(data)
        super().data_received(data)
        if self._receives_headers:
            if self._receives_since is not None:
                self._check_header_bytes(self._header_bytes)
        elif self._framing_bytes > self._limits.header_bytes and not self._is_closing:
            self._is_closing = True  # a trailer or an extension of a chunk has no end
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """Start to receive a request."""
        super().on_message_begin()
        self._header_bytes = 0
        self._receives_headers, self._receives_since = True, self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header, or a trailer after a chunked body."""
        super().on_header(name, value)
        if len(self.headers) > _MAX_HEADERS:
            raise ValueError("too many headers")  # which take more memory than their bytes
        if not self._receives_headers:
            self._header_bytes += len(name) + len(value)
            if self._header_bytes > self._limits.header_bytes:
                raise ValueError("too many trailers")

    def on_headers_complete(self) -> None:
        """Start the request. An HTTP/1.0 client that asks for keep-alive gets a response that confirms it."""
        size = len(self.url) + sum(map(len, chain.from_iterable(self.headers)))
        if self._is_closing or not self._check_header_bytes(size):
            return
        if len(self.pipeline) >= _MAX_PIPELINED:
            self._close_after_responses()
            return
        self._header_bytes = 0
        self._receives_headers, self._receives_since = False, self.loop.time()
        self._is_received = False
        self._take_body = None
        self._body_bytes, self._counted_bytes, self._moved_at = 0, 0, self.loop.time()
        self._parts = self._framing_bytes = 0
        self.body_error = None
        scope: MutableMapping[str, Any] = self.scope
        scope["target"] = self.url
        scope["connection"] = self
        super().on_headers_complete()
        self.cycle.keep_alive = self.parser.should_keep_alive()
        scope["is_http10_keep_alive"] = self.cycle.keep_alive and self.parser.get_http_version() == "1.0"

    def receive_body(self, take: Callable[[int], bool]) -> None:
        """Pass the size of each part of the body, as it arrives, to `take`, which returns whether to go on receiving.

        If not, the application is woken with what has arrived, and reading goes on when it waits for more.
        """
        self._take_body = take
        if not self.pipeline and not take(len(self.cycle.body)):
            self._wake_with_body()

    def on_body(self, body: bytes) -> None:
        """Collect the body. It is only used as a whole, so do not wake the application for each part."""
        self._framing_bytes = 0
        if self._is_closing or self.cycle.response_complete:
            return
        self.cycle.body += body
        self._body_bytes += len(body)
        self._parts += 1
        if self._parts > _FREE_PARTS and self._body_bytes < _MIN_PART_BYTES * self._parts:
            raise ValueError("too many small parts of a body")
        if self._body_bytes - self._counted_bytes >= _MOVED_BYTES:
            self._counted_bytes, self._moved_at = self._body_bytes, self.loop.time()
        if self.pipeline:  # a pipelined request, whose turn has not come
            if len(self.cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
        elif self._take_body and not self._take_body(len(body)):
            self._wake_with_body()

    def _wake_with_body(self) -> None:
        self.flow.pause_reading()
        self.cycle.message_event.set()

    def on_message_complete(self) -> None:
        """End to receive a request."""
        if self._is_closing:
            return
        self._is_received = True
        self._receives_headers, self._receives_since = True, None
        super().on_message_complete()
        if not self.pipeline:
            self.flow.resume_reading()  # asyncio must notice a disconnect

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for it."""
        self.on_disconnect = None
        self._take_body = None  # what arrives next is not this request's
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()  # the base class resumes it for each response
        if self._receives_since is not None:
            self._receives_since = self.loop.time()  # what was sent early may have waited
        elif not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self._idle[self] = None
            self._received = b""

    def check_time(self, now: float) -> None:
        """Reject a request that takes too long to arrive; close the connection if the client has closed it."""
        if self.flow.read_paused and _is_closed_by_peer(self.transport.get_extra_info("socket")):
            self.transport.abort()
            return
        is_busy = self._receives_headers and self.cycle is not None and not self.cycle.response_complete
        if self._receives_since is None or self._is_closing or is_busy or self.pipeline:
            return
        part, flag, timeout_s = (
            ("headers", "header_timeout_seconds", self._limits.header_timeout_s)
            if self._receives_headers
            else ("body", "body_timeout_seconds", self._limits.body_timeout_s)
        )
        if now - self._receives_since > timeout_s:
            error = OverloadError(f"the {part} of the request took longer than {timeout_s:g} s (--{flag})", limit=flag)
            if self._receives_headers or self.cycle.response_started:
                self.refuse(_rejection(error))
            else:
                self.reject_body(error)

    def still_bytes(self, now: float) -> int:
        """Return how much of a body has arrived that stands still; 0 if it doesn't, or if it is small."""
        waits = self._take_body and not self._receives_headers and not self.flow.read_paused and not self.body_error
        is_still = waits and self._receives_since is not None and now - self._moved_at > _STILL_S
        return self._body_bytes if is_still else 0

    def reject_body(self, error: OverloadError) -> None:
        """Let the application reject the request instead of waiting for the rest of its body."""
        self.body_error = error
        self._wake_with_body()

    async def wait_until_sent(self) -> None:
        """Return when most of a response has been sent; close the connection if the client doesn't read it in time."""
        if self.flow.write_paused:
            try:
                await asyncio.wait_for(self.flow.drain(), self._limits.body_timeout_s)
            except asyncio.TimeoutError:
                self.transport.abort()

    def refuse(self, response: Response) -> None:
        """Send a response to a request that has not been received as a whole, and close the connection.

        Discards for a while what the client sends, because the system would otherwise drop the response.
        """
        self._is_closing = True
        if self.cycle is not None and not self.cycle.response_complete:
            is_started = self.cycle.response_started or bool(self.pipeline)
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        else:
            is_started = self.cycle is not None and not self._receives_headers
        if is_started or not self.transport.can_write_eof():
            if not is_started:
                self.transport.write(_encode(response))
            self.transport.close()
            return
        self.transport.write(_encode(response))
        self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(_LINGER_S, self.transport.close)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the base class's text
        """Respond to what the parser rejects, and close: with 501 if only the method is unknown, else 400."""
        line = _REQUEST_LINE.match(self._received)
        is_unknown = line is not None and line[1].decode("latin-1") not in KNOWN_METHODS
        self.transport.write(_encode(page(501, "Not Implemented") if is_unknown else page(400, "Bad Request")))
        self.transport.close()

    def _check_header_bytes(self, size: int) -> bool:
        """Return whether the size of the headers is allowed; refuse the request otherwise."""
        limit = self._limits.header_bytes
        if size <= limit:
            return True
        error = OverloadError(
            f"the headers of the request have more than {limit} bytes, which is the limit (--max_header_bytes)",
            limit="max_header_bytes",
        )
        if self.cycle is not None and not self.cycle.response_complete:  # an earlier request is answered first
            self._close_after_responses()
        else:
            self.refuse(_rejection(error))
        return False

    def _close_after_responses(self) -> None:
        """Ignore what arrives from now on, and close the connection after the responses to what has arrived."""
        self._is_closing = True
        self.cycle.keep_alive = False


def _rejection(error: OverloadError) -> Response:
    """Return the response to a request that is rejected before it has a route, and count it."""
    count_rejection("REST", error)
    return error_response(error)


def _is_closed_by_peer(connection: socket.socket | None) -> bool:
    """Return whether the peer has closed the connection, even if what it has sent before is not read yet."""
    if connection is None or connection.fileno() < 0:  # it is lost already
        return False
    poll = select.poll()
    poll.register(connection.fileno(), getattr(select, "POLLRDHUP", 0))  # Linux; elsewhere only after errors
    return bool(poll.poll(0))


def close_longest_idle(idle: dict[Protocol, None]) -> bool:
    """Make room for a new connection; return whether there is an idle one, which is closed."""
    longest = next(iter(idle), None)
    if longest is None:
        return False
    del idle[longest]
    longest.transport.abort()  # closing may wait for the client
    return True


def raw_headers(response: Response) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response as bytes."""
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        **response.headers,
    }
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _encode(response: Response) -> bytes:
    """Return a whole response, after which the connection closes."""
    status_line = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}".encode()
    lines: Iterable[bytes] = (name + b": " + value for name, value in raw_headers(response))
    return b"\r\n".join([status_line, *lines, b"Connection: close", b"", response.body])
