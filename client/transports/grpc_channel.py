"""What channels are opened with, and what their errors mean, whether one waits for them or not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

from savedmodel_bakery.client.errors import ClientError, DeadlineExceededError, RequestRefusedError
from savedmodel_bakery.client.transports.transport import Endpoint, connection_failed, deadline_exceeded
from savedmodel_bakery.wire.status import Code

# Calls go to the servers in turn. UNAVAILABLE without any of an answer is tried again, by gRPC's own means
# (github.com/grpc/proposal/blob/master/A6-client-retries.md); nothing else is.
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
    # While a channel backs off, calls fail without a look at the server: by default for up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    # Larger requests are not kept for another try: 256 kB by default, which is less than a photo.
    ("grpc.per_rpc_retry_buffer_size", 32 << 20),
)


# Each call is measured as it went, over a connection that no other channel of the process shares.
_LOAD_OPTIONS: tuple[tuple[str, int | str], ...] = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))


def options_for(endpoints: Sequence[Endpoint], *, for_load: bool = False) -> list[tuple[str, int | str]]:
    """Options of a channel to one server or several; see `GrpcTransport` for `for_load`."""
    is_proxied = not all(endpoint.is_loopback for endpoint in endpoints)
    return [*_OPTIONS, ("grpc.enable_http_proxy", int(is_proxied)), *(_LOAD_OPTIONS if for_load else ())]


def address_of(endpoints: Sequence[Endpoint]) -> str:
    """What gRPC calls them (github.com/grpc/grpc/blob/master/doc/naming.md).

    Raises:
        ValueError: for several that are not all IPv4 or all IPv6 addresses, as gRPC has no name for a list of others.
    """
    if len(endpoints) == 1:
        return endpoints[0].address
    try:
        [version] = {ip_address(endpoint.host).version for endpoint in endpoints}
    except ValueError:
        named = ", ".join(endpoint.address for endpoint in endpoints)
        raise ValueError(
            f"several targets are all IPv4 or all IPv6 addresses, {named} were given; "
            "a single name that stands for several addresses is balanced too"
        ) from None
    return f"ipv{version}:" + ",".join(endpoint.address for endpoint in endpoints)


def error_of(
    exc: Any, endpoints: Sequence[Endpoint], *, timeout_s: float, is_connected: Callable[[], bool]
) -> ClientError:
    """Name an RpcError.

    Args:
        exc: of either API of gRPC.
        endpoints: who was asked.
        timeout_s: how long they had.
        is_connected: tells whether the channel is, which an error doesn't.
    """
    code = Code(exc.code().value[0])
    if code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED) and not is_connected():
        return connection_failed(endpoints)
    if code is not Code.DEADLINE_EXCEEDED:
        return RequestRefusedError(code, exc.details() or "")
    if exc.details() in (None, "", "Deadline Exceeded"):  # the text of gRPC itself, which names no time
        return deadline_exceeded(endpoints, timeout_s)
    return DeadlineExceededError(exc.details())
