"""One connection for each way of reaching a model server; each sends the calls of `client.calls`.

Imports gRPC or HTTP on demand only.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports.transport import ServerTransport
from savedmodel_bakery.defaults import DEFAULT_MODEL
from savedmodel_bakery.errors import InvalidResponseError, RequestRefusedError
from savedmodel_bakery.wire.status import Code

_MAX_LISTED = 20


def create_transport(server: Server, *, timeout_s: float, for_load: bool = False) -> ServerTransport:
    """Create the transport of a model server, which connects when it sends its first call.

    With `for_load`, it uses a connection that nothing else shares.
    """
    if server.transport == "rest":
        from savedmodel_bakery.client.transports.rest import RestTransport

        return RestTransport(server, timeout_s=timeout_s)
    if server.transport == "v2":
        from savedmodel_bakery.client.transports.v2_http import V2HttpTransport

        return V2HttpTransport(server, timeout_s=timeout_s)
    from savedmodel_bakery.client.transports.grpc import GrpcTransport

    return GrpcTransport(server, timeout_s=timeout_s, for_load=for_load)


def find_model(server: Server, *, timeout_s: float, argument: str) -> str:
    """Return the name of a server's only model, or that of the demo if the server does not list its models.

    Raises ValueError for several; `argument` is what states the name.
    """
    names = _list_models(server, timeout_s=timeout_s) or [DEFAULT_MODEL]
    if len(names) > 1:
        more = "" if len(names) <= _MAX_LISTED else f" and {len(names) - _MAX_LISTED} more"
        raise ValueError(
            f"the server has several models: pass one of {', '.join(names[:_MAX_LISTED])}{more} with {argument}"
        )
    return names[0]


def _list_models(server: Server, *, timeout_s: float) -> list[str] | None:
    """Return the names of a server's models; None if it does not list them, as tensorflow_model_server."""
    from savedmodel_bakery.client.transports import v2_flows

    v2 = replace(server, transport="v2-grpc" if server.uses_grpc else "v2")
    with closing(create_transport(v2, timeout_s=timeout_s)) as transport:
        try:
            return transport.run(v2_flows.model_names())
        except InvalidResponseError:
            return None
        except RequestRefusedError as exc:
            if exc.code is Code.UNAVAILABLE:
                raise
            return None
