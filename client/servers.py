"""Model servers as callers describe them: protocol, addresses, TLS, token and timeout. Only reads TLS files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from os import PathLike
from typing import Literal, cast

from savedmodel_bakery.client.credentials import Tls, check_token

MAX_TIMEOUT_S = 86_400  # a day; sockets and gRPC overflow far beyond it

TransportName = Literal["grpc", "rest", "v2", "v2-grpc"]

PROTOCOLS: Mapping[str, str] = {"grpc": "gRPC", "rest": "REST", "v2": "v2 (HTTP)", "v2-grpc": "v2 (gRPC)"}
"""Names of the transports in messages."""

_OVER_GRPC = ("grpc", "v2-grpc")
_SCHEMES: Mapping[str, TransportName] = {"grpc": "grpc", "grpcs": "grpc", "http": "rest", "https": "rest"}
_ENCRYPTED = ("grpcs", "https")
_WITH_SCHEME = re.compile(r"(?P<scheme>[^/@]*)://(?P<address>.*?)/?")
_TARGET = re.compile(r"(?:\[(?P<ipv6>[^\s\[\]/]+)\]|(?P<host>[^\s\[\]/:@?#]+))(?::(?P<port>\d{1,5}))?", re.ASCII)


@dataclass(frozen=True)
class Endpoint:
    """The host and port of a server, and the protocol it speaks there, as error messages show it (`gRPC`, `REST`)."""

    host: str
    port: int
    protocol: str

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 65535:
            raise ValueError(f"invalid port {self.port}: must be between 1 and 65535")

    @classmethod
    def parse(cls, target: str, port: int, protocol: str) -> Endpoint:
        """Parse `HOST` or `HOST:PORT`; `port` is the default. An IPv6 address needs brackets if a port follows it."""
        is_bare_ipv6 = target.count(":") > 1 and "[" not in target
        match = _TARGET.fullmatch(f"[{target}]" if is_bare_ipv6 else target)
        if match is None or not _is_host(match["ipv6"], match["host"]):
            raise ValueError(f'invalid target "{hide_password(target)}": must be HOST or HOST:PORT, without a path')
        return cls(match["ipv6"] or match["host"], int(match["port"] or port), protocol)

    @property
    def address(self) -> str:
        """Host and port as gRPC and URLs write them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether the address belongs to this machine only, so that no proxy can reach it."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False


def hide_password(target: str) -> str:
    """Return a target as messages show it: without user and password."""
    return re.sub(r"^(\w*://)?.*@", r"\1…@", target, flags=re.DOTALL)


def check_timeout(timeout_s: float) -> None:
    """Raise ValueError for a timeout that transports cannot apply."""
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise ValueError(f"invalid timeout_s {timeout_s:g}: must be above 0 and at most {MAX_TIMEOUT_S:g}")


def _is_host(ipv6: str | None, name: str) -> bool:
    try:
        if ipv6 is not None:
            IPv6Address(ipv6)
        else:
            name.encode("idna")  # for other names urllib3 raises an error that requests does not catch
    except ValueError:
        return False
    return True


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


def find_transport(target: str | Sequence[str]) -> TransportName | None:
    """Return the default transport of the targets' scheme; None if they have no scheme."""
    return _SCHEMES.get(_split_targets(target)[0])


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

    The default transport is that of the scheme, or gRPC; the ports are for targets without one.
    """
    scheme, addresses = _split_targets(target)
    default = _SCHEMES.get(scheme)
    if transport is None:
        transport = default or "grpc"
    elif transport not in PROTOCOLS:
        names = ", ".join(f'"{name}"' for name in PROTOCOLS)
        raise ValueError(
            f'invalid transport "{transport}": must be one of {names}; for AMQP use AmqpClient or AsyncAmqpClient'
        )
    elif default and (default in _OVER_GRPC) != (transport in _OVER_GRPC):
        raise ValueError(f"the target's scheme is for {PROTOCOLS[default]}, not for {PROTOCOLS[transport]}")
    uses_grpc = transport in _OVER_GRPC
    own_port, other_port = (port, rest_api_port) if uses_grpc else (rest_api_port, port)
    if own_port is None and other_port is not None:
        raise ValueError(
            f'the port of the other transport was given: "{transport}" uses {"port" if uses_grpc else "rest_api_port"}'
        )
    if scheme in _ENCRYPTED:
        tls = tls or Tls()
    elif scheme and tls:
        raise ValueError("TLS is on, but the target's scheme is for a connection without TLS: use grpcs:// or https://")
    default_port = own_port or (8500 if uses_grpc else 8501)
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
    return Server(cast(TransportName, transport), endpoints, tls, token=None if token is None else check_token(token))


def select_tls(
    target: str | Sequence[str],
    *,
    is_on: bool,
    ca: str | PathLike[str] | None,
    cert: str | PathLike[str] | None,
    key: str | PathLike[str] | None,
) -> Tls | None:
    """Return the TLS settings of a program's options `--tls`, `--ca`, `--cert` and `--key`."""
    if is_on or _split_targets(target)[0] in _ENCRYPTED:
        return Tls(ca, cert, key)
    for name, file in (("--ca", ca), ("--cert", cert), ("--key", key)):
        if file is not None:
            raise ValueError(f"{name} needs TLS: add --tls, or begin the target with grpcs:// or https://")
    return None


def _split_targets(target: str | Sequence[str]) -> tuple[str, list[str]]:
    """Return the scheme of all targets, empty if they have none, and the targets without it."""
    targets = [target] if isinstance(target, str) else list(target)
    if not targets:
        raise ValueError("no target: pass at least one HOST or HOST:PORT")
    schemes, addresses = set(), []
    for text in targets:
        match = _WITH_SCHEME.fullmatch(text)
        if match is not None and match["scheme"] not in _SCHEMES:
            raise ValueError(f'invalid target "{hide_password(text)}": the scheme must be one of {", ".join(_SCHEMES)}')
        schemes.add(match["scheme"] if match else "")
        addresses.append(match["address"] if match else text)
    if len(schemes) > 1:
        raise ValueError("the targets have different schemes: use the same for all")
    return schemes.pop(), addresses
