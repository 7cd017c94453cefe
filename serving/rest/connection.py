"""HTTP/1.1 on one connection: the order of its requests, and their limits of time. Does not know the URLs.

Data flows one way: the parser passes requests to the connection, which makes an `Exchange` of each. They are served one
after the other, whatever arrives meanwhile; the body of the last one may still arrive while it is served.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections import deque
from collections.abc import Awaitable, Callable

from savedmodel_bakery.serving.admission.limits import READING_S, RETRY_AFTER_S, OverloadError
from savedmodel_bakery.serving.call.http import Response, encode_response, error_response, page
from savedmodel_bakery.serving.rest.connections import Connections
from savedmodel_bakery.serving.rest.exchange import Exchange
from savedmodel_bakery.serving.rest.parser import Head, MalformedRequestError, RequestParser
from savedmodel_bakery.serving.rest.router import KNOWN_METHODS
from savedmodel_bakery.serving.telemetry.metrics import count_rejection

logger = logging.getLogger(__name__)

_LINGER_S = 2.0
_MAX_PIPELINED = 16  # requests that wait on a connection for the response to an earlier one; each takes a few kilobytes


class Connection(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, connections: Connections, serve: Callable[[Exchange], Awaitable[None]]) -> None:
        self._connections = connections
        self._limits = connections.limits
        self._serve = serve
        self._loop = asyncio.get_running_loop()
        self._parser = RequestParser(connections.limits, self._begin_request, self._receive_body, self._end_request)
        self._peer = ""
        self._exchanges: deque[Exchange] = deque()  # the first is being served; the body of the last may still arrive
        self._is_serving = False
        self._is_closing = False  # what arrives is ignored
        self._is_paused = False
        self._is_writable = asyncio.Event()
        self._is_writable.set()
        self._unread_since = 0.0  # while it is not writable
        self._receives_since: float | None = None  # a head or a body

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to receive; close the connection if there are too many."""
        self.transport = transport  # type: ignore[assignment]
        self._peer = ":".join(map(str, (transport.get_extra_info("peername") or ())[:2]))
        self._receives_since = self._loop.time()
        has_room = self._connections.make_room()
        self._connections.open.add(self)
        if not has_room:
            error = OverloadError(
                f"{self._limits.connections} connections are open, which is the limit (--max_connections)",
                RETRY_AFTER_S,
                limit="max_connections",
            )
            self._close_with(_rejection(error))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - named by asyncio
        """End the current request."""
        self._is_closing = True
        self._connections.open.discard(self)
        self._connections.idle.pop(self, None)
        self._is_writable.set()
        for exchange in self._exchanges:
            exchange.disconnect()

    def pause_writing(self) -> None:
        """Wait: the client does not read."""
        self._is_writable.clear()
        self._unread_since = self._loop.time()

    def resume_writing(self) -> None:
        """Go on."""
        self._is_writable.set()

    def data_received(self, data: bytes) -> None:
        """Process received bytes."""
        if self._is_closing:
            return
        self._connections.idle.pop(self, None)
        if self._receives_since is None:
            self._receives_since = self._loop.time()
        try:
            self._parser.feed(data)
        except OverloadError as error:
            self._reject(error)
        except MalformedRequestError as error:
            self._reject_malformed(error)
        if self._parser.is_between:
            self._receives_since = None

    # Called by the parser

    def _begin_request(self, head: Head) -> None:
        """Serve a request, or let it wait for earlier ones."""
        if self._is_closing:
            return
        if len(self._exchanges) > _MAX_PIPELINED:
            self._close_after_responses()
            return
        self._receives_since = self._loop.time()
        self._exchanges.append(Exchange(self, head, self._peer, self._loop.time()))
        if len(self._exchanges) > 1:
            self.pause_reading()
        elif not self._is_serving:
            self._is_serving = True
            task = self._loop.create_task(self._serve_all())
            self._connections.tasks.add(task)
            task.add_done_callback(self._connections.tasks.discard)

    def _receive_body(self, part: bytes) -> None:
        """Receive a part of a body."""
        if not self._is_closing:
            self._exchanges[-1].receive(part, self._loop.time())

    def _end_request(self) -> None:
        """End to receive a request."""
        if self._is_closing:
            return
        self._exchanges[-1].complete()
        if len(self._exchanges) == 1:
            self.resume_reading()  # asyncio must notice a disconnect

    # Called by exchanges and by the server

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`."""
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on to receive."""
        if self._is_paused and not self.transport.is_closing():
            self._is_paused = False
            self.transport.resume_reading()

    def write_continue(self) -> None:
        """Ask for the body of a request whose client waits for that (RFC 9110, 10.1.1)."""
        self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def send(self, exchange: Exchange, response: Response) -> None:
        """Send the response of the first exchange; return when the client has read most of it, or took too long."""
        if self.transport.is_closing():
            return
        method = exchange.request.method
        if not exchange.is_complete:  # it is rejected, or does not need its body
            self._refuse(response, method)
            return
        encoded = encode_response(response, method, keep_alive=exchange.keep_alive, version=exchange.version)
        self.transport.writelines(encoded)
        if not self._is_writable.is_set():
            try:
                await asyncio.wait_for(self._is_writable.wait(), self._limits.body_timeout_s)
            except asyncio.TimeoutError:
                self.transport.abort()

    def shutdown(self) -> None:
        """Close the connection, after the responses to what has arrived."""
        if self._exchanges:
            self._exchanges[-1].keep_alive = False
        else:
            self.transport.close()

    def check_time(self, now: float) -> None:
        """Reject a request that takes too long to arrive; close the connection if the client has closed it."""
        if self._is_paused and _is_closed_by_peer(self.transport.get_extra_info("socket")):
            self.transport.abort()
        elif self._is_closing or self._receives_since is None:
            return
        elif not self._exchanges:
            self._check_age("headers", "header_timeout_seconds", now, self._limits.header_timeout_s)
        elif len(self._exchanges) == 1 and not self._exchanges[0].is_complete:  # others wait for a response
            self._check_age("body", "body_timeout_seconds", now, self._limits.body_timeout_s)

    def receiving(self) -> Exchange | None:
        """Return the exchange that is served while its body arrives."""
        first = self._exchanges[0] if self._exchanges else None
        return first if first and not first.is_complete and not self._is_paused else None

    def unread_bytes(self, now: float) -> int:
        """Return how much of a response the client has not read, if it has had some time for it; else 0."""
        is_slow = not self._is_writable.is_set() and now - self._unread_since > READING_S
        return self.transport.get_write_buffer_size() if is_slow else 0

    async def _serve_all(self) -> None:
        """Serve the exchanges, until there are none."""
        try:
            while self._exchanges and not self.transport.is_closing():
                exchange = self._exchanges[0]
                await self._serve(exchange)
                self._exchanges.popleft()
                if not exchange.keep_alive and exchange.is_complete:
                    self._close()
                elif len(self._exchanges) <= 1:
                    self.resume_reading()
                if self._receives_since is not None:
                    self._receives_since = self._loop.time()  # what was sent early may have waited
        except Exception:
            logger.exception("a connection of the REST port failed")
            self.transport.abort()
        finally:
            self._is_serving = False
        if self._receives_since is None and not self._is_closing and not self.transport.is_closing():
            self._connections.idle[self] = self._loop.time()

    def _check_age(self, part: str, flag: str, now: float, timeout_s: float) -> None:
        """Reject the part of a request that has begun to arrive too long ago."""
        if self._receives_since is None or now - self._receives_since <= timeout_s:
            return
        error = OverloadError(f"the {part} of the request took longer than {timeout_s:g} s (--{flag})", limit=flag)
        if self._exchanges:
            self._exchanges[0].fail(error)
        else:
            self._reject(error)

    def _reject(self, error: OverloadError) -> None:
        """Reject a request before its headers are complete; earlier ones are answered first."""
        if self._exchanges:
            self._close_after_responses()
        else:
            self._refuse(_rejection(error))

    def _reject_malformed(self, error: MalformedRequestError) -> None:
        """Reject what is no request; earlier ones are answered first."""
        if len(self._exchanges) > 1 and not self._exchanges[-1].is_complete:
            self._exchanges.pop()  # its body is damaged
        if self._exchanges and self._exchanges[-1].is_complete:
            self._close_after_responses()
        else:
            is_unknown = error.method and error.method not in KNOWN_METHODS
            self._close_with(page(501, "Not Implemented") if is_unknown else page(400, "Bad Request"))
            for exchange in self._exchanges:  # whose body is damaged
                exchange.disconnect()

    def _close_after_responses(self) -> None:
        """Ignore what arrives from now on, and close the connection after the responses to what has arrived."""
        self._is_closing = True
        self._exchanges[-1].keep_alive = False

    def _close_with(self, response: Response, method: str = "") -> None:
        """Send a last response and close the connection."""
        self._is_closing = True
        self.transport.writelines(encode_response(response, method, keep_alive=False))
        self._close()

    def _close(self) -> None:
        """Close the connection when the client has read what was sent, or took too long."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._loop.call_later(self._limits.body_timeout_s, self.transport.abort)

    def _refuse(self, response: Response, method: str = "") -> None:
        """Send a response to a request that has not been received as a whole, and close the connection.

        Discards for a while what the client sends, because the system would otherwise drop the response.
        """
        if not self.transport.can_write_eof():
            self._close_with(response, method)
            return
        self._is_closing = True
        self.transport.writelines(encode_response(response, method, keep_alive=False))
        self.transport.write_eof()
        self.resume_reading()
        self._loop.call_later(_LINGER_S, self._close)


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
