"""The REST server: uvicorn speaks HTTP on its own thread, and thread pools handle the requests."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import uvicorn

from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.limits import RETRY_AFTER_S, OverloadError
from savedmodel_bakery.serving.call.call import Call, Entrypoint, Lane
from savedmodel_bakery.serving.call.methods import Route
from savedmodel_bakery.serving.call.threads import CallThreads
from savedmodel_bakery.serving.http.messages import Request, Response
from savedmodel_bakery.serving.rest.body import UNCHARGED_BYTES, Body
from savedmodel_bakery.serving.rest.protocol import Protocol, raw_headers
from savedmodel_bakery.serving.rest.router import UNKNOWN_VERSION, Router
from savedmodel_bakery.serving.rest.tls_server import TlsServer
from savedmodel_bakery.serving.telemetry.requests import REQUEST_ID, Entry

_Message = MutableMapping[str, Any]

# Longer than load balancers keep idle connections; the real server never closes them.
_KEEP_ALIVE_S = 3600
_CONTROL_THREADS = 8
_CALLER_HAS_GONE = "499"  # as nginx logs it; no response has this status
_ORIGIN = re.compile(rb"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//[^/?#]*")  # with or without a scheme (RFC 3986, 4.2)


class RestServer:
    """Serves REST on one TCP port.

    Args:
        router: the URLs to serve.
        address: IP address to listen on.
        port: TCP port.
        admission: the limits of requests, and which of them run.
        entrypoint: for the metrics and the access log.
        timeout_s: seconds that a request may take from the end of its body; None for no limit.
        tls: the context for TLS; None for plain text.

    Raises:
        OSError: the port is not available.
    """

    def __init__(
        self,
        router: Router,
        address: str,
        port: int,
        admission: Admission,
        entrypoint: Entrypoint,
        *,
        timeout_s: float | None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._router = router
        self._entrypoint = entrypoint
        self._limits = admission.limits
        self._timeout_s = timeout_s
        self._runs = Lane(admission, CallThreads(admission.places, "rest"))
        control = admission.with_turns(_CONTROL_THREADS)
        self._control = Lane(control, CallThreads(control.turns, "rest-control"))
        self._idle: dict[Protocol, None] = {}
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, port), family=family, backlog=1024)
        config = uvicorn.Config(
            self._serve,
            http=partial(Protocol, limits=self._limits, idle=self._idle),
            callback_notify=self._check_times,
            timeout_notify=0,
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
        self._server = (
            TlsServer(
                config,
                tls,
                max_connections=self._limits.connections,
                idle=self._idle,
                timeout_s=self._limits.header_timeout_s,
            )
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
        """Serve a request whose headers have arrived; uvicorn calls this."""
        connection: Protocol = scope["connection"]
        request = Request(scope["method"], _target(scope), _headers(scope))
        route = self._router.find(request) if scope["http_version"] in ("1.0", "1.1") else UNKNOWN_VERSION
        lane = self._runs if route.runs_model else self._control
        entry = self._observe(request, scope)
        name = f"{request.method} {request.target}"
        timeout_s = self._limits.body_timeout_s
        call = Call(self._entrypoint, name, lane.admission, entry, api=route.api, timeout_s=timeout_s)
        call.context.model_name = route.model_name
        connection.on_disconnect = call.context.cancel
        body = Body(call.context, lane, receive, connection, runs_model=route.runs_model)
        status = _CALLER_HAS_GONE
        try:
            response = await self._respond(call, request, route, lane, body)
            if response:
                status, call.sent_bytes = str(response.status), len(response.body)
                headers = {} if route.is_page else dict(self._router.cors_headers)
                if entry and entry.request_id:
                    headers[REQUEST_ID] = entry.request_id
                if scope["is_http10_keep_alive"] and connection.is_received:
                    headers["Connection"] = "keep-alive"
                await _finish(connection, send, replace(response, headers={**headers, **response.headers}))
        finally:
            call.context.close()
            call.end(status)

    def _observe(self, request: Request, scope: _Message) -> Entry | None:
        """Return the entry of a request; None if requests are not observed."""
        if self._entrypoint.requests is None:
            return None
        peer = ":".join(map(str, scope["client"] or ()))
        return self._entrypoint.requests.begin_http(request.method, request.path, peer, request.headers)

    async def _respond(self, call: Call, request: Request, route: Route, lane: Lane, body: Body) -> Response | None:
        """Return the response to a request; None if the client has disconnected."""
        try:
            call.identify(self._router.authorize(request))
            return await self._handle(call, request, route, lane, body)
        except Exception as error:
            return route.on_error(call.fail(error))
        finally:
            call.leave()

    async def _handle(self, call: Call, request: Request, route: Route, lane: Lane, body: Body) -> Response | None:
        """Receive the rest of a request and handle it.

        A request that runs no model takes its place when its body has arrived, so that no one holds these places.
        """
        call.received_bytes = 0
        if route.is_instant:
            return call.handle(route.handle, request)
        received: bytes | None = b""
        if route.takes_body:
            received = await body.read(request)
        call.enter()
        if route.runs_model:
            lane.admission.expect(call.context, self._timeout_s)
            received = await body.read(request)
        if received is None:
            return None
        request.body = received
        call.received_bytes = len(received)
        call.context.restart(self._timeout_s)
        # The turn begins here and not on the thread, because two threads that wake up per request cost more than one.
        async with lane.admission.turn(call.context) if route.runs_model else nullcontext():
            return await lane.run(call.handle, route.handle, request)

    async def _check_times(self) -> None:
        """Close the connections whose requests take too long to arrive. Called every second.

        While requests wait for memory, the largest one whose body stands still gives its memory back.
        """
        now = asyncio.get_running_loop().time()
        connections = [each for each in self._server.server_state.connections if isinstance(each, Protocol)]
        for connection in connections:
            connection.check_time(now)
        if connections and self._runs.admission.memory.queued:
            largest = max(connections, key=lambda connection: connection.still_bytes(now))
            if largest.still_bytes(now) > UNCHARGED_BYTES:
                error = "other requests wait for the memory of this one, whose body stands still"
                largest.reject_body(OverloadError(error, RETRY_AFTER_S, limit="memory_budget_bytes"))


async def _finish(connection: Protocol, send: Callable[[_Message], Awaitable[None]], response: Response) -> None:
    """Send the response to a request; close the connection if the request has not been received as a whole."""
    if not connection.is_received:  # it is rejected, or does not need its body
        connection.refuse(response)
        return
    await send({"type": "http.response.start", "status": response.status, "headers": raw_headers(response)})
    await send({"type": "http.response.body", "body": response.body})
    await connection.wait_until_sent()


def _target(scope: _Message) -> str:
    """Return path, query and fragment as they were sent."""
    sent: bytes = scope["target"]
    origin = _ORIGIN.match(sent)
    return (sent[origin.end() :] if origin else sent).decode("latin-1")


def _headers(scope: _Message) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
