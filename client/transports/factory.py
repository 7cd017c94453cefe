"""Creates transports. Each one imports a library that is slow to import, so they are imported here on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.extras import naming_extras

if TYPE_CHECKING:
    from savedmodel_bakery.client.transports.amqp import AmqpTransport
    from savedmodel_bakery.client.transports.amqp_aio import AmqpAioTransport
    from savedmodel_bakery.client.transports.transport import PreparedTransport


def create_transport(server: Server, *, timeout_s: float, for_load: bool = False) -> PreparedTransport:
    """Create a gRPC or REST transport, which connects when it sends its first call.

    Args:
        server: the server.
        timeout_s: time limit of a call.
        for_load: use a connection that nothing else shares.

    Raises:
        ValueError: gRPC has no name for several addresses.
    """
    if server.transport == "rest":
        from savedmodel_bakery.client.transports.rest import RestTransport

        return RestTransport(server, timeout_s=timeout_s)

    from savedmodel_bakery.client.transports.grpc import GrpcTransport

    return GrpcTransport(server, timeout_s=timeout_s, for_load=for_load)


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
