"""The REST server: uvicorn's HTTP on a thread of its own, requests handled on a pool of threads."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from savedmodel_bakery.serving.rest.codec import Request, Response
from savedmodel_bakery.serving.rest.errors import page
from savedmodel_bakery.serving.rest.handlers import KNOWN_METHODS, Handlers

_Message = MutableMapping[str, Any]


# Longer than balancers keep connections; the real server never closes one.
_KEEP_ALIVE_S = 3600
_UPGRADE_HEADER = re.compile(rb"^upgrade:[^\r\n]*\r\n", re.IGNORECASE | re.MULTILINE)
_ORIGIN = re.compile(rb"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//[^/?#]*")  # with or without scheme (RFC 3986, 4.2)
_REQUEST_LINE = re.compile(rb"(\S+) \S+ HTTP/1\.[01]\r?\n")


class _Protocol(HttpToolsProtocol):
    """HTTP/1.1 that overlooks an Upgrade header, as a server may (RFC 9110, 7.8), and keeps the target as it was sent.

    Java's client offers HTTP/2 with every plain request; the parser would then give the body to nobody.
    """

    def data_received(self, data: bytes) -> None:
        """Take bytes from the connection; headers come in one piece from all clients that upgrade."""
        self._received = data
        if b"pgrade" in data[:65536] and _REQUEST_LINE.match(data):
            head, end, body = data.partition(b"\r\n\r\n")
            data = _UPGRADE_HEADER.sub(b"", head + b"\r\n")[:-2] + end + body
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Hand the request on; those of HTTP/1.0 may ask to keep the connection, and are told that it is."""
        scope: _Message = self.scope
        scope["target"] = self.url
        super().on_headers_complete()
        self.cycle.keep_alive = self.parser.should_keep_alive()
        scope["is_kept_on_request"] = self.cycle.keep_alive and self.parser.get_http_version() == "1.0"

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body; only all of it is of use, so reading goes on, and nobody is woken before its end."""
        if not self.cycle.response_complete:
            self.cycle.body += body
            if self.pipeline and len(self.cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()  # that of a request whose turn has not come

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the base class's text
        """Answer what the parser refuses, and hang up: 501 where only the method is unknown, else 400."""
        line = _REQUEST_LINE.match(self._received)
        unknown = line is not None and line[1].decode("latin-1") not in KNOWN_METHODS
        response = page(501, "Not Implemented") if unknown else page(400, "Bad Request")
        status_line = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}".encode()
        lines = [status_line, *(name + b": " + value for name, value in _raw_headers(response))]
        self.transport.write(b"\r\n".join([*lines, b"Connection: close", b"", response.body]))
        self.transport.close()


class RestServer:
    """Answers REST on one TCP port.

    Raises:
        OSError: the port can't be listened on.
    """

    def __init__(self, handlers: Handlers, address: str, port: int, *, threads: int) -> None:
        self._handlers = handlers
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="rest")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, port), family=family, backlog=1024)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._serve,
                http=_Protocol,
                timeout_keep_alive=_KEEP_ALIVE_S,
                ws="none",
                lifespan="off",
                interface="asgi3",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                log_level="warning",
            )
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="rest", daemon=True)

    def start(self) -> None:
        """Begin to answer; return at once, as the port takes connections already."""
        self._thread.start()

    def stop(self, grace_s: float) -> None:
        """Take no further requests; return when those running are answered, or when the grace is over."""
        self._server.config.timeout_graceful_shutdown = int(grace_s)
        self._server.should_exit = True
        self._thread.join(grace_s)

    async def _serve(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        body = await _read_body(receive)
        if body is None:
            return
        if scope["http_version"] not in ("1.0", "1.1"):  # which the parser lets pass
            await _send(send, page(400, "Bad Request"), (b"Connection", b"close"))
            return
        request = Request(scope["method"], _target(scope), _headers(scope), body)
        headers = [(b"Connection", b"keep-alive")] if scope["is_kept_on_request"] else []
        answering = asyncio.get_running_loop().run_in_executor(self._workers, self._handlers.respond, request)
        gone = asyncio.ensure_future(_hang_up(receive))
        await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if answering.done():
            await _send(send, await answering, *headers)
        else:
            answering.cancel()  # the caller hung up, so what still waits for a thread is not computed


async def _hang_up(receive: Callable[[], Awaitable[_Message]]) -> None:
    """Return when the caller has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Callable[[_Message], Awaitable[None]], response: Response, *headers: tuple[bytes, bytes]) -> None:
    raw_headers = [*_raw_headers(response), *headers]
    await send({"type": "http.response.start", "status": response.status, "headers": raw_headers})
    await send({"type": "http.response.body", "body": response.body})


async def _read_body(receive: Callable[[], Awaitable[_Message]]) -> bytes | None:
    """The whole body; None where the caller went away before its end."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


def _target(scope: _Message) -> str:
    """Path, query and fragment, as they were sent."""
    sent: bytes = scope["target"]
    origin = _ORIGIN.match(sent)
    return (sent[origin.end() :] if origin else sent).decode("latin-1")


def _headers(scope: _Message) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _raw_headers(response: Response) -> list[tuple[bytes, bytes]]:
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        **response.headers,
    }
    return [(name.encode(), value.encode()) for name, value in headers.items()]
