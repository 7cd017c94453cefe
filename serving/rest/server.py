"""The REST server: an event loop on its own thread receives requests, and thread pools handle them."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial

from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.budget import Cost
from savedmodel_bakery.serving.call.call import Call, Entrypoint
from savedmodel_bakery.serving.call.http import Request, Response, Route
from savedmodel_bakery.serving.call.threads import CallThreads
from savedmodel_bakery.serving.rest.connection import Connection
from savedmodel_bakery.serving.rest.connections import Connections, accept_tls
from savedmodel_bakery.serving.rest.exchange import Exchange, Lane
from savedmodel_bakery.serving.rest.router import BAD_REQUEST, Router
from savedmodel_bakery.serving.telemetry.requests import REQUEST_ID

_CONTROL_THREADS = 8
_CHECK_INTERVAL_S = 1.0
_CALLER_HAS_GONE = "499"  # as nginx logs it; no response has this status


class RestServer:
    """Serves REST on one TCP port; raises OSError if it is not available.

    `timeout_s` is how long a request may take from the end of its body.
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
        self._tls = tls
        self._runs = Lane(admission, CallThreads(admission.places, "rest"))
        control = Admission(admission.limits, admission.memory, turns=_CONTROL_THREADS)
        self._control = Lane(control, CallThreads(control.turns, "rest-control"))
        self._connections = Connections(self._limits)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, port), family=family, backlog=1024)
        self._loop = _new_event_loop()
        self._is_stopping = asyncio.Event()
        self._grace_s = 0.0
        self._thread = threading.Thread(target=self._run, name="rest", daemon=True)

    def start(self) -> None:
        """Start to serve. Returns at once, as the port already accepts connections."""
        self._thread.start()

    def stop(self, grace_s: float) -> None:
        """Reject new requests; return when the running ones have finished or the grace period is over."""
        self._grace_s = grace_s
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._is_stopping.set)
        self._thread.join(grace_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._listen())
        finally:
            self._loop.close()

    async def _listen(self) -> None:
        """Accept connections until the server stops."""
        make_connection = partial(Connection, self._connections, self._serve)
        server = accepting = None
        if self._tls:
            accept = accept_tls(self._socket, self._tls, self._connections, make_connection)
            accepting = self._loop.create_task(accept)
        else:
            server = await self._loop.create_server(make_connection, sock=self._socket, backlog=1024)
        while not self._is_stopping.is_set():
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._is_stopping.wait(), _CHECK_INTERVAL_S)
            self._connections.check_times(self._loop.time(), self._runs.admission.memory)
        if server:
            server.close()
        if accepting:
            accepting.cancel()
        self._socket.close()
        await self._connections.shutdown(int(self._grace_s))

    async def _serve(self, exchange: Exchange) -> None:
        """Serve a request whose headers have arrived."""
        request = exchange.request
        if exchange.version in ("1.0", "1.1"):
            route = self._router.find(request)
        else:  # the parser accepts any
            route, exchange.keep_alive = BAD_REQUEST, False
        lane = self._runs if route.runs_model else self._control
        requests = self._entrypoint.requests
        entry = None
        if requests:
            entry = requests.begin_http(request.method, request.path, exchange.peer, request.headers)
        name = f"{request.method} {request.target}"
        timeout_s = self._limits.body_timeout_s
        call = Call(self._entrypoint, name, lane.admission, entry, api=route.api, timeout_s=timeout_s)
        call.context.model_name = route.model_name
        exchange.on_disconnect = call.context.cancel
        status = _CALLER_HAS_GONE
        try:
            response = await self._respond(call, exchange, route, lane)
            if response:
                status, call.sent_bytes = str(response.status), len(response.body)
                request.body = b""  # or it would take memory until the client has read the response
                call.context.settle(Cost.RESPONSE * len(response.body))
                headers = {} if route.is_page else dict(self._router.cors_headers)
                if entry and entry.request_id:
                    headers[REQUEST_ID] = entry.request_id
                if headers:
                    response = replace(response, headers={**headers, **response.headers})
                await exchange.send(response)
        finally:
            call.context.close()
            call.end(status)

    async def _respond(self, call: Call, exchange: Exchange, route: Route, lane: Lane) -> Response | None:
        """Return the response to a request; None if the client has disconnected."""
        try:
            call.identify(self._router.authorize(exchange.request))
            return await self._handle(call, exchange, route, lane)
        except Exception as error:
            response = route.on_error(call.fail(error))
            return replace(response, headers={**self._router.cors_headers, **response.headers})
        finally:
            call.leave()

    async def _handle(self, call: Call, exchange: Exchange, route: Route, lane: Lane) -> Response | None:
        """Receive the rest of a request and handle it.

        A request that runs no model takes its place when its body has arrived, so that no one holds these places.
        """
        request: Request = exchange.request
        call.received_bytes = 0
        if route.is_instant:
            return call.handle(route.handle, request)
        body: bytes | None = b""
        if route.takes_body:
            body = await exchange.read_body(call.context, lane, runs_model=False)
        call.enter()
        if route.runs_model:
            lane.admission.expect(call.context, self._timeout_s)
            body = await exchange.read_body(call.context, lane, runs_model=True)
        if body is None:
            return None
        request.body = body
        call.received_bytes = len(body)
        call.context.restart(self._timeout_s)
        # The turn begins here and not on the thread, because two threads that wake up per request cost more than one.
        async with lane.admission.turn(call.context) if route.runs_model else nullcontext():
            return await lane.run(call.handle, route.handle, request)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # not on Windows
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
