"""Creates transports. Each one imports a library that is slow to import, so they are imported here on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from savedmodel_bakery.client.endpoints import parse_targets
from savedmodel_bakery.extras import naming_extras

if TYPE_CHECKING:
    from savedmodel_bakery.client.transports.amqp import AmqpTransport
    from savedmodel_bakery.client.transports.amqp_aio import AmqpAioTransport
    from savedmodel_bakery.client.transports.transport import PreparedTransport

DEFAULT_PORTS = {"grpc": 8500, "rest": 8501}


def create_transport(
    transport: str, target: str | Sequence[str], *, port: int | None = None, timeout_s: float, for_load: bool = False
) -> PreparedTransport:
    """Create a gRPC or REST transport, which connects when it sends its first call.

    Args:
        transport: `grpc` or `rest`.
        target: see `Client`.
        port: for targets without a port; the default is 8500 for gRPC and 8501 for REST.
        timeout_s: time limit of a call.
        for_load: use a connection that nothing else shares, and never retry.

    Raises:
        ValueError: a target is not an address, or there are several for REST.
    """
    port = DEFAULT_PORTS[transport] if port is None else port
    if transport == "rest":
        from savedmodel_bakery.client.transports.rest import RestTransport

        endpoints = parse_targets(target, port, "REST")
        if len(endpoints) > 1:
            raise ValueError(f'{len(endpoints)} targets for transport "rest": it takes one; "grpc" takes several')
        return RestTransport(endpoints[0], timeout_s=timeout_s, for_load=for_load)

    from savedmodel_bakery.client.transports.grpc import GrpcTransport

    return GrpcTransport(parse_targets(target, port, "gRPC"), timeout_s=timeout_s, for_load=for_load)


def create_amqp_transport(target: str, *, queue: str, timeout_s: float) -> AmqpTransport:
    """Create an AMQP transport, which connects when it sends its first call.

    Raises:
        ModuleNotFoundError: the extra `amqp` is not installed.
        ValueError: the target is not a broker's address.
    """
    transport = create_async_amqp_transport(target, queue=queue, timeout_s=timeout_s)
    from savedmodel_bakery.client.transports.amqp import AmqpTransport

    return AmqpTransport(transport)


def create_async_amqp_transport(target: str, *, queue: str, timeout_s: float) -> AmqpAioTransport:
    """Create the same for asyncio.

    Raises:
        ModuleNotFoundError: see `create_amqp_transport`.
        ValueError: see `create_amqp_transport`.
    """
    with naming_extras("AMQP", "amqp"):
        from savedmodel_bakery.client.transports.amqp_aio import AmqpAioTransport
        from savedmodel_bakery.client.transports.amqp_broker import Broker
    return AmqpAioTransport(Broker.parse(target), queue=queue, timeout_s=timeout_s)
