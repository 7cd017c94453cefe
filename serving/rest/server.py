"""The REST server: uvicorn speaks HTTP on its own thread, and a thread pool handles the requests."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.rest.codec import Request, Response
from savedmodel_bakery.serving.rest.errors import page
from savedmodel_bakery.serving.rest.handlers import KNOWN_METHODS, Handlers
from savedmodel_bakery.serving.rest.tls_server import TlsServer

_Message = MutableMapping[str, Any]


# Longer than load balancers keep idle connections; the real server never closes them.
_KEEP_ALIVE_S = 3600
_UPGRADE_HEADER = re.compile(rb"^upgrade:[^\r\n]*\r\n", re.IGNORECASE | re.MULTILINE)
_ORIGIN = re.compile(rb"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//[^/?#]*")  # with or without a scheme (RFC 3986, 4.2)
_REQUEST_LINE = re.compile(rb"(\S+) \S+ HTTP/1\.[01]\r?\n")


class _Protocol(HttpToolsProtocol):
    """HTTP/1.1 that ignores the header Upgrade (RFC 9110, 7.8 allows that) and keeps the target as it was sent.

    Java's HTTP client offers an upgrade to HTTP/2 with every plain request, for which the parser discards the body.
    """

    def data_received(self, data: bytes) -> None:
        """Process received bytes. Clients that offer an upgrade send all headers at once."""
        self._received = data
        if b"pgrade" in data[:65536] and _REQUEST_LINE.match(data):
            head, end, body = data.partition(b"\r\n\r\n")
            data = _UPGRADE_HEADER.sub(b"", head + b"\r\n")[:-2] + end + body
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Start the request. An HTTP/1.0 client that asks for keep-alive gets a response that confirms it."""
        scope: _Message = self.scope
        scope["target"] = self.url
        super().on_headers_complete()
        self.cycle.keep_alive = self.parser.should_keep_alive()
        scope["is_http10_keep_alive"] = self.cycle.keep_alive and self.parser.get_http_version() == "1.0"

    def on_body(self, body: bytes) -> None:
        """Collect the body. It is only used as a whole, so do not wake the application before its end."""
        if not self.cycle.response_complete:
            self.cycle.body += body
            if self.pipeline and len(self.cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()  # a pipelined request, whose turn has not come

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the base class's text
        """Respond to what the parser rejects, and close: with 501 if only the method is unknown, else 400."""
        line = _REQUEST_LINE.match(self._received)
        is_unknown = line is not None and line[1].decode("latin-1") not in KNOWN_METHODS
        response = page(501, "Not Implemented") if is_unknown else page(400, "Bad Request")
        status_line = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}".encode()
        lines = [status_line, *(name + b": " + value for name, value in _raw_headers(response))]
        self.transport.write(b"\r\n".join([*lines, b"Connection: close", b"", response.body]))
        self.transport.close()


class RestServer:
    """Serves REST on one TCP port.

    Args:
        handlers: the URLs to serve.
        address: IP address to listen on.
        port: TCP port.
        admission: the limits of requests, and which of them run.
        timeout_s: seconds that a request may take from its arrival; None for no limit.
        tls: the context for TLS; None for plain text.

    Raises:
        OSError: the port is not available.
    """

    def __init__(
        self,
        handlers: Handlers,
        address: str,
        port: int,
        admission: Admission,
        *,
        timeout_s: float | None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._handlers = handlers
        self._admission = admission
        self._timeout_s = timeout_s
        self._workers = ThreadPoolExecutor(admission.places, thread_name_prefix="rest")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, port), family=family, backlog=1024)
        config = uvicorn.Config(
            self._serve,
            http=_Protocol,
            timeout_keep_alive=_KEEP_ALIVE_S,
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            log_config=None,  # this process's
            log_level="warning",
        )
        limits = admission.limits
        self._server = (
            TlsServer(config, tls, max_connections=limits.connections, timeout_s=limits.header_timeout_s)
            if tls
            else uvicorn.Server(config)
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="rest", daemon=True)

    def start(self) -> None:
        """Start to serve. Returns at once, as the port already accepts connections."""
        self._thread.start()

    def stop(self, grace_s: float) -> None:
        """Reject new requests; return when the running ones have finished or the grace period is over."""
        self._server.config.timeout_graceful_shutdown = int(grace_s)
        self._server.should_exit = True
        self._thread.join(grace_s)

    async def _serve(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        request = Request(scope["method"], _target(scope), _headers(scope), b"")
        identity = self._handlers.authorize(request)
        if isinstance(identity, Response):
            # A caller that waits for "100 Continue" may send its body or not, so the next request can't be found.
            await _send(send, identity, *[(b"Connection", b"close")] * ("expect" in request.headers))
            return
        body = await _read_body(receive)
        if body is None:
            return
        if scope["http_version"] not in ("1.0", "1.1"):  # the parser accepts any version
            await _send(send, page(400, "Bad Request"), (b"Connection", b"close"))
            return
        request = replace(request, body=body)
        headers = [(b"Connection", b"keep-alive")] if scope["is_http10_keep_alive"] else []
        context = self._admission.context(timeout_s=self._timeout_s, identity=identity)
        responding = asyncio.get_running_loop().run_in_executor(self._workers, self._respond, request, context)
        disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
        await asyncio.wait((responding, disconnected), return_when=asyncio.FIRST_COMPLETED)
        disconnected.cancel()
        if responding.done():
            await _send(send, await responding, *headers)
        else:
            context.cancel()

    def _respond(self, request: Request, context: RequestContext) -> Response:
        try:
            return self._handlers.respond(request, context)
        finally:
            context.close()


async def _wait_for_disconnect(receive: Callable[[], Awaitable[_Message]]) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Callable[[_Message], Awaitable[None]], response: Response, *headers: tuple[bytes, bytes]) -> None:
    raw_headers = [*_raw_headers(response), *headers]
    await send({"type": "http.response.start", "status": response.status, "headers": raw_headers})
    await send({"type": "http.response.body", "body": response.body})


async def _read_body(receive: Callable[[], Awaitable[_Message]]) -> bytes | None:
    """Return the whole body; None if the client disconnected before its end."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


def _target(scope: _Message) -> str:
    """Return path, query and fragment as they were sent."""
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
