"""Creates transports. Each one imports a library that is slow to import, so they are imported here on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savedmodel_bakery.client.servers import Server

if TYPE_CHECKING:
    from savedmodel_bakery.client.transports.grpc import GrpcAioTransport
    from savedmodel_bakery.client.transports.transport import ServerTransport


def create_transport(server: Server, *, timeout_s: float, for_load: bool = False) -> ServerTransport:
    """Create the transport of a model server, which connects when it sends its first call.

    With `for_load`, it uses a connection that nothing else shares. ValueError if gRPC has no name for several
    addresses.
    """
    if server.transport == "rest":
        from savedmodel_bakery.client.transports.rest import RestTransport

        return RestTransport(server, timeout_s=timeout_s)
    if server.transport == "v2":
        from savedmodel_bakery.client.transports.v2_http import V2HttpTransport

        return V2HttpTransport(server, timeout_s=timeout_s)
    from savedmodel_bakery.client.transports.grpc import GrpcTransport

    return GrpcTransport(server, timeout_s=timeout_s, for_load=for_load)


def create_async_transport(server: Server, *, timeout_s: float) -> GrpcAioTransport:
    """Create the same for asyncio, which gRPC alone has."""
    if not server.uses_grpc:
        raise ValueError(f'transport "{server.transport}": an asynchronous client takes "grpc" or "v2-grpc"')
    from savedmodel_bakery.client.transports.grpc import GrpcAioTransport

    return GrpcAioTransport(server, timeout_s=timeout_s)
