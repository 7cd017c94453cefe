"""Sends calls over gRPC, also with asyncio; `grpc_codec` or `v2_grpc_codec` encodes the messages of the API."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from ipaddress import ip_address
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc

from savedmodel_bakery import tracing
from savedmodel_bakery.client.calls import Call, run_flow_async
from savedmodel_bakery.client.servers import Endpoint, Server
from savedmodel_bakery.client.transports.failures import (
    THREADS_BUSY,
    connecting_failed,
    deadline_exceeded,
    name_not_resolved,
    pause_after,
    send_with_retries_async,
)
from savedmodel_bakery.client.transports.transport import ServerTransport, refused
from savedmodel_bakery.errors import ClientError, DeadlineExceededError
from savedmodel_bakery.wire.status import Code

_READY: int = grpc.ChannelConnectivity.READY.value[0]
_POLL_INTERVAL_S = 0.02


class GrpcTransport(ServerTransport):
    """One channel to one server or several, for messages up to protobuf's limit of 2 GiB; not shared if `for_load`."""

    def __init__(self, server: Server, *, timeout_s: float, for_load: bool = False) -> None:
        super().__init__(timeout_s)
        self._codec = _import_codec(server)
        self._server = server
        self._metadata = call_metadata(server)
        self._channel = create_channel(server, for_load=for_load)

    def prepare_message(self, path: str, message: bytes) -> Callable[[float], bytes]:
        """Return the function that sends a message once, within some seconds, and returns the serialized response."""
        invoke = self._channel.unary_unary(path)

        def send(timeout_s: float) -> bytes:
            with call_span(path, self._server):
                metadata = (*self._metadata, *tracing.headers().items())
                try:
                    content: bytes = invoke(message, timeout=timeout_s, metadata=metadata)
                except grpc.RpcError as exc:
                    is_connected = self._is_connected(exc.code())
                    raise client_error(exc, self._server, timeout_s=self._timeout_s, is_connected=is_connected) from exc
                return content

        return send

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _exchange(self, call: Call) -> Any:
        return self._codec.exchange(call)

    def _prepare(self, request: Any, _end_s: float) -> Callable[[float], bytes]:
        return self.prepare_message(self._codec.method_of(request).path, self._codec.encode_request(request))

    def _decode(self, request: Any, content: Any) -> Any:
        return self._codec.decode_response(request, content)

    def _is_connected(self, code: grpc.StatusCode) -> bool:
        """Return whether the channel is connected: an error does not say whether server or connection caused it."""
        # Not by `subscribe`: it starts a thread, for which gRPC waits for ever if the program ends first.
        read_state = self._channel._channel.check_connectivity_state
        deadline = time.monotonic() + (CONNECTING_S if code is grpc.StatusCode.DEADLINE_EXCEEDED else 0.0)
        with suppress(ValueError):  # another thread has closed the channel
            while read_state(False) != _READY:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_POLL_INTERVAL_S)
            return True
        return False


class GrpcAioTransport:
    """The same for asyncio; the channel is bound to the event loop of the first call."""

    def __init__(self, server: Server, *, timeout_s: float) -> None:
        join_addresses(server.endpoints)  # raises ValueError
        self._codec = _import_codec(server)
        self._server = server
        self._timeout_s = timeout_s
        self._metadata = call_metadata(server)
        self._channel: Any = None

    async def send(self, call: Call) -> Any:
        """Send a call, with retries; see `Transport.send`."""
        end_s = time.monotonic() + self._timeout_s

        async def send(request: Any) -> Any:
            path, message = self._codec.method_of(request).path, self._codec.encode_request(request)
            content = await send_with_retries_async(
                lambda timeout_s: self._send_once(path, message, timeout_s), end_s=end_s
            )
            return self._codec.decode_response(request, content)

        return await run_flow_async(self._codec.exchange(call), send)

    async def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close()

    async def _send_once(self, path: str, message: bytes, timeout_s: float) -> bytes:
        if self._channel is None:  # created here because it needs a running loop
            self._channel = create_channel(self._server, api=grpc.aio)
        with call_span(path, self._server):
            metadata = (*self._metadata, *tracing.headers().items())
            try:
                content: bytes = await self._channel.unary_unary(path)(message, timeout=timeout_s, metadata=metadata)
            except grpc.RpcError as exc:
                is_connected = await self._is_connected(exc.code())
                raise client_error(exc, self._server, timeout_s=self._timeout_s, is_connected=is_connected) from exc
            return content

    async def _is_connected(self, code: grpc.StatusCode) -> bool:
        """Return whether the channel is connected. Polls, because gRPC may hang after a cancelled `channel_ready`."""
        end = time.monotonic() + CONNECTING_S
        while code is grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() < end:
            if self._channel.get_state() is grpc.ChannelConnectivity.READY:
                break
            await asyncio.sleep(_POLL_INTERVAL_S)
        return bool(self._channel.get_state() is grpc.ChannelConnectivity.READY)


def _import_codec(server: Server) -> ModuleType:
    """Return the module that encodes and decodes the messages of the server's API."""
    if server.transport == "v2-grpc":
        from savedmodel_bakery.client.transports import v2_grpc_codec

        return v2_grpc_codec
    from savedmodel_bakery.client.transports import grpc_codec

    return grpc_codec


_BALANCED = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})
_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # While a channel backs off, calls fail without a connection attempt; by default for up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.service_config", _BALANCED),
)

CONNECTING_S = 1.0
"""How long to look, after a deadline, whether the server accepts a connection: a short deadline may expire before."""

# In the details of UNAVAILABLE; gRPC has no codes for them.
_RESOLUTION_FAILED = re.compile(r"errors resolving|DNS resolution failed|[Aa]ddress lookup failed")
_NOT_CONNECTED = re.compile(r"connections to all backends failing|failed to connect to all addresses")
# gRPC's own details of DEADLINE_EXCEEDED, which do not state the time limit.
_DEADLINE_TEXTS = ("", "Deadline Exceeded", "Stream removed (Deadline Exceeded)")

# A load test measures each attempt, over a connection that no other channel of the process shares. Without this option
# gRPC repeats calls that have not reached a server; `failures` does all else.
_LOAD_OPTIONS: tuple[tuple[str, int | str], ...] = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))


def create_channel(server: Server, *, api: ModuleType = grpc, for_load: bool = False) -> Any:
    """Create a channel of `grpc` or `grpc.aio`, which connects when used. Calls must send `call_metadata(server)`."""
    is_proxied = not all(endpoint.is_loopback for endpoint in server.endpoints)
    options = [*_OPTIONS, ("grpc.enable_http_proxy", int(is_proxied)), *(_LOAD_OPTIONS if for_load else ())]
    address = join_addresses(server.endpoints)
    if server.tls is None:
        return api.insecure_channel(address, options)
    ca, cert, key = (
        None if file is None else Path(file).read_bytes() for file in (server.tls.ca, server.tls.cert, server.tls.key)
    )
    credentials = grpc.ssl_channel_credentials(ca, cert if key is None else key, cert)
    return api.secure_channel(address, credentials, options)


def call_metadata(server: Server) -> tuple[tuple[str, str], ...]:
    """Return the metadata to send with each call: the token, as RFC 6750 writes it.

    gRPC's call credentials do the same, but not without TLS.
    """
    return () if server.token is None else (("authorization", f"Bearer {server.token}"),)


def call_span(path: str, server: Server) -> AbstractContextManager[Any]:
    """Return the span of one attempt of a call, with the address of the first server."""
    endpoint = server.endpoints[0]
    address = {"server.address": endpoint.host, "server.port": endpoint.port}
    return tracing.span(path.lstrip("/"), "CLIENT", {**tracing.rpc_attributes(path), **address})


def join_addresses(endpoints: Sequence[Endpoint]) -> str:
    """Return gRPC's name for one endpoint or several (github.com/grpc/grpc/blob/master/doc/naming.md)."""
    if len(endpoints) == 1:
        return endpoints[0].address
    try:
        [version] = {ip_address(endpoint.host).version for endpoint in endpoints}
    except ValueError:
        addresses = ", ".join(endpoint.address for endpoint in endpoints)
        raise ValueError(
            f"invalid targets {addresses}: several targets must be all IPv4 or all IPv6 addresses; "
            "a single name that resolves to several addresses is balanced too"
        ) from None
    return f"ipv{version}:" + ",".join(endpoint.address for endpoint in endpoints)


def client_error(exc: Any, server: Server, *, timeout_s: float, is_connected: bool) -> ClientError:
    """Return the ClientError for an RpcError of either API; it does not say itself whether the channel is connected."""
    code, details = Code(exc.code().value[0]), exc.details() or ""
    if code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED) and not is_connected:
        if _RESOLUTION_FAILED.search(details):
            return name_not_resolved(server.endpoints)
        return connecting_failed(server, details if _NOT_CONNECTED.search(details) else "")
    if details == THREADS_BUSY:
        details += ": too many calls at once for the server; its flag --grpc_max_threads permits more"
    if code is not Code.DEADLINE_EXCEEDED:
        return refused(code, details, retry_after_s=pause_after(exc.trailing_metadata() or (), code))
    if details in _DEADLINE_TEXTS:
        return deadline_exceeded(server.endpoints, timeout_s)
    return DeadlineExceededError(details)
