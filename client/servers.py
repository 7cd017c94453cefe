"""Model servers as callers describe them: protocol, addresses, TLS and token. Does no I/O but read TLS files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Literal, NamedTuple, cast

from savedmodel_bakery.client.credentials import Tls, check_token
from savedmodel_bakery.client.endpoints import Endpoint, hide_password

TransportName = Literal["grpc", "rest", "v2", "v2-grpc"]

PROTOCOLS: Mapping[str, str] = {"grpc": "gRPC", "rest": "REST", "v2": "v2 (HTTP)", "v2-grpc": "v2 (gRPC)"}
"""Names of the transports in messages."""

_OVER_GRPC = ("grpc", "v2-grpc")
_GRPC_PORT = 8500
_REST_API_PORT = 8501


class Scheme(NamedTuple):
    """What the scheme of a target states: the default transport, and whether TLS is on."""

    transport: TransportName
    is_encrypted: bool


_SCHEMES = {
    "grpc": Scheme("grpc", is_encrypted=False),
    "grpcs": Scheme("grpc", is_encrypted=True),
    "http": Scheme("rest", is_encrypted=False),
    "https": Scheme("rest", is_encrypted=True),
}
_WITH_SCHEME = re.compile(r"(?P<scheme>[^/@]*)://(?P<address>.*?)/?")


@dataclass(frozen=True)
class Server:
    """A model server, or several that serve the same models. Without `tls` the connection is not encrypted."""

    transport: TransportName
    endpoints: Sequence[Endpoint]
    tls: Tls | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def uses_grpc(self) -> bool:
        """Whether the transport sends gRPC requests rather than HTTP/1.1 requests."""
        return self.transport in _OVER_GRPC

    @property
    def exposes_token(self) -> bool:
        """Whether the token would be sent without encryption to another machine."""
        is_remote = not all(endpoint.is_loopback for endpoint in self.endpoints)
        return self.token is not None and self.tls is None and is_remote


def find_scheme(target: str | Sequence[str]) -> Scheme | None:
    """Return what the scheme of the targets states; None if they have no scheme.

    Raises:
        ValueError: the scheme is unknown, or the targets have different ones.
    """
    return _split_targets(target)[0]


def parse_server(
    target: str | Sequence[str],
    *,
    transport: str | None = None,
    port: int | None = None,
    rest_api_port: int | None = None,
    tls: Tls | None = None,
    token: str | None = None,
) -> Server:
    """Return the server of one target or several: HOST or HOST:PORT, with or without the scheme of a transport.

    The default transport is that of the scheme, or gRPC. The ports are for targets without one. A target with
    `grpcs://` or `https://` uses TLS by default.
    """
    scheme, addresses = _split_targets(target)
    transport = _select_transport(scheme, transport)
    uses_grpc = transport in _OVER_GRPC
    own_port, other_port = (port, rest_api_port) if uses_grpc else (rest_api_port, port)
    if own_port is None and other_port is not None:
        raise ValueError(
            f'the port of the other transport was given: "{transport}" uses {"port" if uses_grpc else "rest_api_port"}'
        )
    if scheme is not None and tls is not None and not scheme.is_encrypted:
        raise ValueError("TLS is on, but the target's scheme is for a connection without TLS: use grpcs:// or https://")
    if scheme is not None and scheme.is_encrypted:
        tls = tls or Tls()
    default_port = own_port or (_GRPC_PORT if uses_grpc else _REST_API_PORT)
    endpoints = [Endpoint.parse(address, default_port, PROTOCOLS[transport]) for address in addresses]
    if len(endpoints) > 1 and not uses_grpc:
        others = "v2-grpc" if transport == "v2" else "grpc"
        raise ValueError(
            f'{len(endpoints)} targets for transport "{transport}": it takes one; "{others}" takes several'
        )
    if tls is not None and len(endpoints) > 1:
        raise ValueError(
            f"{len(endpoints)} targets with TLS: gRPC checks certificates against one name; "
            "pass a single name that resolves to all addresses"
        )
    return Server(transport, endpoints, tls, token=None if token is None else check_token(token))


def select_tls(
    target: str | Sequence[str],
    *,
    is_on: bool,
    ca: str | PathLike[str] | None,
    cert: str | PathLike[str] | None,
    key: str | PathLike[str] | None,
) -> Tls | None:
    """Return the TLS settings of a program's options `--tls`, `--ca`, `--cert` and `--key`."""
    scheme = find_scheme(target)
    if is_on or (scheme is not None and scheme.is_encrypted):
        return Tls(ca, cert, key)
    for name, file in (("--ca", ca), ("--cert", cert), ("--key", key)):
        if file is not None:
            raise ValueError(f"{name} needs TLS: add --tls, or begin the target with grpcs:// or https://")
    return None


def _split_targets(target: str | Sequence[str]) -> tuple[Scheme | None, list[str]]:
    """Return what the scheme of all targets states, and the targets without their schemes."""
    targets = [target] if isinstance(target, str) else list(target)
    if not targets:
        raise ValueError("no target: pass at least one HOST or HOST:PORT")
    names, addresses = set(), []
    for text in targets:
        match = _WITH_SCHEME.fullmatch(text)
        if match is not None and match["scheme"] not in _SCHEMES:
            raise ValueError(f'invalid target "{hide_password(text)}": the scheme must be one of {", ".join(_SCHEMES)}')
        names.add(match and match["scheme"])
        addresses.append(match["address"] if match else text)
    if len(names) > 1:
        raise ValueError("the targets have different schemes: use the same for all")
    [name] = names
    return (None if name is None else _SCHEMES[name]), addresses


def _select_transport(scheme: Scheme | None, transport: str | None) -> TransportName:
    if transport is None:
        return "grpc" if scheme is None else scheme.transport
    if transport not in PROTOCOLS:
        names = ", ".join(f'"{name}"' for name in PROTOCOLS)
        raise ValueError(
            f'invalid transport "{transport}": must be one of {names}; for AMQP use AmqpClient or AsyncAmqpClient'
        )
    name = cast(TransportName, transport)
    if scheme is not None and (scheme.transport in _OVER_GRPC) != (name in _OVER_GRPC):
        raise ValueError(f"the target's scheme is for {PROTOCOLS[scheme.transport]}, not for {PROTOCOLS[name]}")
    return name
