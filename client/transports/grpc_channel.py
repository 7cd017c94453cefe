"""Creates gRPC channels and maps gRPC errors to ClientError, for both of gRPC's APIs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from ipaddress import ip_address
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc

from savedmodel_bakery import tracing
from savedmodel_bakery.client.endpoints import Endpoint
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports.connection_errors import (
    connecting_failed,
    deadline_exceeded,
    name_not_resolved,
)
from savedmodel_bakery.client.transports.retries import pause_after
from savedmodel_bakery.client.transports.transport import refused
from savedmodel_bakery.errors import ClientError, DeadlineExceededError
from savedmodel_bakery.wire.status import Code

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
# gRPC repeats calls that have not reached a server; `retries` does all else.
_LOAD_OPTIONS: tuple[tuple[str, int | str], ...] = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))


def create_channel(server: Server, *, api: ModuleType = grpc, for_load: bool = False) -> Any:
    """Create a channel of `grpc` or `grpc.aio`, which connects when it is used.

    Each call must send `call_metadata(server)`.
    """
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
    if code is not Code.DEADLINE_EXCEEDED:
        return refused(code, details, retry_after_s=pause_after(exc.trailing_metadata() or (), code))
    if details in _DEADLINE_TEXTS:
        return deadline_exceeded(server.endpoints, timeout_s)
    return DeadlineExceededError(details)
