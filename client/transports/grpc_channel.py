"""Configures gRPC channels and maps gRPC errors to ClientError, for both of gRPC's APIs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from savedmodel_bakery.client.endpoints import Endpoint
from savedmodel_bakery.client.errors import ClientError, DeadlineExceededError, RequestRefusedError
from savedmodel_bakery.client.transports.transport import connection_failed, deadline_exceeded, name_not_resolved
from savedmodel_bakery.wire.status import Code

# Calls are balanced over the servers. gRPC retries UNAVAILABLE if no part of a response has arrived, and nothing else
# (github.com/grpc/proposal/blob/master/A6-client-retries.md).
_SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        {
            "name": [
                {"service": "tensorflow.serving.PredictionService"},
                {"service": "tensorflow.serving.ModelService"},
            ],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
}
_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # While a channel backs off, calls fail without a connection attempt; by default for up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    # Larger requests are not retried. The default is 256 kB, which is less than a photo.
    ("grpc.per_rpc_retry_buffer_size", 32 << 20),
)

CONNECTING_S = 1.0
"""How long to look, after a deadline, whether the server accepts a connection: a short deadline may expire before."""

# The details of UNAVAILABLE; gRPC has no code for it.
_RESOLUTION_FAILED = re.compile(r"errors resolving|DNS resolution failed|[Aa]ddress lookup failed")

# Load tests measure each attempt, over a connection that no other channel of the process shares.
_LOAD_OPTIONS: tuple[tuple[str, int | str], ...] = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))


def channel_options(endpoints: Sequence[Endpoint], *, for_load: bool = False) -> list[tuple[str, int | str]]:
    """Return the options of a channel to one server or several; see `GrpcTransport` for `for_load`."""
    is_proxied = not all(endpoint.is_loopback for endpoint in endpoints)
    return [*_OPTIONS, ("grpc.enable_http_proxy", int(is_proxied)), *(_LOAD_OPTIONS if for_load else ())]


def join_addresses(endpoints: Sequence[Endpoint]) -> str:
    """Return gRPC's name for one endpoint or several (github.com/grpc/grpc/blob/master/doc/naming.md).

    Raises:
        ValueError: several endpoints are not all IPv4 or all IPv6 addresses: gRPC has no names for other lists.
    """
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


def client_error(exc: Any, endpoints: Sequence[Endpoint], *, timeout_s: float, is_connected: bool) -> ClientError:
    """Return the ClientError for an RpcError.

    Args:
        exc: the error, from either of gRPC's APIs.
        endpoints: the servers of the channel.
        timeout_s: the time limit of the call.
        is_connected: whether the channel is connected, which the error does not say.
    """
    code = Code(exc.code().value[0])
    if code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED) and not is_connected:
        is_unresolved = _RESOLUTION_FAILED.search(exc.details() or "")
        return name_not_resolved(endpoints) if is_unresolved else connection_failed(endpoints)
    if code is not Code.DEADLINE_EXCEEDED:
        return RequestRefusedError(code, exc.details() or "")
    if exc.details() in (None, "", "Deadline Exceeded"):  # gRPC's own text, which does not state the time limit
        return deadline_exceeded(endpoints, timeout_s)
    return DeadlineExceededError(exc.details())
