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
from typing import Any, NamedTuple, TypeVar

import uvicorn

from savedmodel_bakery.serving.access.required_roles import LIVE_PATH, READY_PATH
from savedmodel_bakery.serving.admission import costs
from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import RETRY_AFTER_S, SMALL_BYTES, OverloadError, check_size
from savedmodel_bakery.serving.call.methods import Route
from savedmodel_bakery.serving.call.threads import CallThreads
from savedmodel_bakery.serving.http.error_responses import page
from savedmodel_bakery.serving.http.messages import Request, Response
from savedmodel_bakery.serving.rest.protocol import Protocol, raw_headers
from savedmodel_bakery.serving.rest.router import Router
from savedmodel_bakery.serving.rest.tls_server import TlsServer
from savedmodel_bakery.serving.telemetry.requests import REQUEST_ID, Entry, Requests
from savedmodel_bakery.wire.status import StatusError

_Message = MutableMapping[str, Any]
_Result = TypeVar("_Result")

# Longer than load balancers keep idle connections; the real server never closes them.
_KEEP_ALIVE_S = 3600
_CONTROL_THREADS = 8
_UNCHARGED_BYTES = 2**16  # of a body that has arrived
_PIECE_BYTES = 2**24  # of a body; copying one holds up all other requests
_CALLER_HAS_GONE = "499"  # as nginx logs it; no response has this status
_ORIGIN = re.compile(rb"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//[^/?#]*")  # with or without a scheme (RFC 3986, 4.2)


class _Lane(NamedTuple):
    """Where a kind of requests runs: runs of models never delay other requests, such as the status of a model."""

    admission: Admission
    threads: CallThreads


class RestServer:
    """Serves REST on one TCP port.

    Args:
        router: the URLs to serve.
        address: IP address to listen on.
        port: TCP port.
        admission: the limits of requests, and which of them run.
        timeout_s: seconds that a request may take from the end of its body; None for no limit.
        tls: the context for TLS; None for plain text.
        requests: where each request is observed; None to observe none.

    Raises:
        OSError: the port is not available.
    """

    def __init__(
        self,
        router: Router,
        address: str,
        port: int,
        admission: Admission,
        *,
        timeout_s: float | None,
        tls: ssl.SSLContext | None = None,
        requests: Requests | None = None,
    ) -> None:
        self._router = router
        self._requests = requests
        self._limits = admission.limits
        self._timeout_s = timeout_s
        self._runs = _Lane(admission, CallThreads(admission.places, "rest"))
        control = admission.with_turns(_CONTROL_THREADS)
        self._control = _Lane(control, CallThreads(control.turns, "rest-control"))
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
        request = Request(scope["method"], _target(scope), _headers(scope))
        if self._requests is None:
            await self._respond(request, scope, receive, send, None)
            return
        peer = ":".join(map(str, scope["client"] or ()))
        entry = self._requests.begin_http(request.method, request.path, peer, request.headers)
        response = None
        try:
            response = await self._respond(request, scope, receive, send, entry)
        finally:
            entry.end(str(response.status) if response else _CALLER_HAS_GONE, len(response.body) if response else 0)

    async def _respond(
        self,
        request: Request,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
        entry: Entry | None,
    ) -> Response | None:
        """Send the response to a request and return it; return None if the client has disconnected."""
        connection: Protocol = scope["connection"]
        route = self._router.find(request)
        if entry and route:
            entry.note_model(route.model_name)
        identity = self._router.authorize(request)
        if isinstance(identity, Response):
            return await _finish(connection, send, _with_id(identity, entry))
        if entry and identity.token:
            entry.token_name = identity.token.name
        if scope["http_version"] not in ("1.0", "1.1"):  # the parser accepts any version
            response = _with_id(page(400, "Bad Request"), entry)
            await _send(send, response, (b"Connection", b"close"))
            return response
        lane = self._runs if route and route.runs_model else self._control
        headers = [(b"Connection", b"keep-alive")] if scope["is_http10_keep_alive"] else []
        context = lane.admission.context(timeout_s=self._limits.body_timeout_s, identity=identity, entry=entry)
        connection.on_disconnect = context.cancel
        try:
            try:
                handled = await self._admit(request, route, context, lane, connection, receive)
            except StatusError as error:
                handled = self._router.reject(error, route)
            if handled is None:
                return None
            return await _finish(connection, send, _with_id(handled, entry), *headers)
        finally:
            if entry:
                entry.received_bytes = len(request.body)
            context.close()

    async def _admit(
        self,
        request: Request,
        route: Route | None,
        context: RequestContext,
        lane: _Lane,
        connection: Protocol,
        receive: Callable[[], Awaitable[_Message]],
    ) -> Response | None:
        """Receive the rest of a request and handle it; return None if the client has disconnected.

        A request that runs no model takes its place when its body has arrived, so that no one holds these places.
        Health takes none.

        Raises:
            StatusError: the request can't be received: there is no place or memory for it, or it is too large or slow.
        """
        if route and request.path in (LIVE_PATH, READY_PATH):  # so that nobody can keep them from being answered
            return self._router.respond(request, route, context)
        body = b"" if lane is self._runs else await self._read_body(request, route, context, lane, connection, receive)
        if not lane.admission.try_enter():
            raise lane.admission.full()
        try:
            if lane is self._runs:
                lane.admission.expect(context, self._timeout_s)
                body = await self._read_body(request, route, context, lane, connection, receive)
            if body is None:
                return None
            request.body = body
            context.restart(self._timeout_s)
            # Here and not on its thread, because two threads that wake up per request cost more than one.
            async with lane.admission.turn(context) if lane is self._runs else nullcontext():
                return await _run(lane, self._router.respond, request, route, context)
        finally:
            lane.admission.leave(context)

    async def _read_body(
        self,
        request: Request,
        route: Route | None,
        context: RequestContext,
        lane: _Lane,
        connection: Protocol,
        receive: Callable[[], Awaitable[_Message]],
    ) -> bytes | None:
        """Return the whole body, for which the request is charged while it arrives; None after a disconnect.

        Does not wait for one that the request does not need, as one to a mistyped URL.
        """
        if route is None or not (route.runs_model or route.takes_body):
            return b""
        max_bytes = self._limits.message_bytes if lane is self._runs else SMALL_BYTES
        length = int(request.headers.get("content-length", 0))
        self._check_length(length, lane)
        lane.admission.memory.check_possible(costs.BODY * length)
        pieces: list[bytes] = []
        size = arrived = charged = 0

        def take(count: int) -> bool:
            nonlocal arrived, charged
            arrived += count
            if arrived > max_bytes or arrived - size > _PIECE_BYTES:
                return False
            if arrived - charged > _UNCHARGED_BYTES:
                if not context.try_charge(costs.BODY * (arrived - charged)):
                    return False
                charged = arrived
            return True

        connection.receive_body(take)
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            if connection.body_error:
                raise connection.body_error
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            self._check_length(size, lane)
            due, charged = size - charged, size  # more may arrive while this waits
            await self._charge(context, costs.BODY * due, lane)
            if not message.get("more_body", False):
                if len(pieces) == 1:
                    return pieces[0]
                # On a thread, because joining a large body takes long.
                return await _run(lane, b"".join, pieces)

    def _check_length(self, size: int, lane: _Lane) -> None:
        check_size(size, self._limits.message_bytes, "bytes", limit="max_message_bytes")
        if lane is self._control:  # its requests need no body
            check_size(size, SMALL_BYTES, "bytes", limit="max_message_bytes", condition="for one that runs no model")

    async def _charge(self, context: RequestContext, size: int, lane: _Lane) -> None:
        """Charge a request; a run of a model waits on a thread if there is not enough memory now."""
        if context.try_charge(size):
            return
        if lane is self._control:  # has few threads
            raise OverloadError(
                "there is not enough memory for the body now (--memory_budget_bytes)",
                RETRY_AFTER_S,
                limit="memory_budget_bytes",
            )
        await _run(lane, context.charge, size)

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
            if largest.still_bytes(now) > _UNCHARGED_BYTES:
                error = "other requests wait for the memory of this one, whose body stands still"
                largest.reject_body(OverloadError(error, RETRY_AFTER_S, limit="memory_budget_bytes"))


async def _run(lane: _Lane, function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Call a function on a thread of a lane.

    Raises:
        OverloadError: there is none.
    """
    lane.threads.check()
    return await asyncio.get_running_loop().run_in_executor(lane.threads, partial(function, *arguments))


def _with_id(response: Response, entry: Entry | None) -> Response:
    """Return a response with the id of its request, if that has one."""
    if entry is None or not entry.request_id:
        return response
    return replace(response, headers={**response.headers, REQUEST_ID: entry.request_id})


async def _finish(
    connection: Protocol,
    send: Callable[[_Message], Awaitable[None]],
    response: Response,
    *headers: tuple[bytes, bytes],
) -> Response:
    """Send the response to a request; close the connection if the request has not been received as a whole."""
    if connection.is_received:
        await _send(send, response, *headers)
        await connection.wait_until_sent()
    else:  # it is rejected, or does not need its body
        connection.refuse(response)
    return response


async def _send(send: Callable[[_Message], Awaitable[None]], response: Response, *headers: tuple[bytes, bytes]) -> None:
    await send(
        {"type": "http.response.start", "status": response.status, "headers": [*raw_headers(response), *headers]}
    )
    await send({"type": "http.response.body", "body": response.body})


def _target(scope: _Message) -> str:
    """Return path, query and fragment as they were sent."""
    sent: bytes = scope["target"]
    origin = _ORIGIN.match(sent)
    return (sent[origin.end() :] if origin else sent).decode("latin-1")


def _headers(scope: _Message) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
