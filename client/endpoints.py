"""Addresses of servers and limits of timeouts. Does no I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

MAX_TIMEOUT_S = 86_400  # a day; sockets and gRPC overflow far beyond it

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
        if match is None or not _is_ipv6(match["ipv6"] or "::") or not _is_resolvable(match["host"] or ""):
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


def _is_ipv6(host: str) -> bool:
    try:
        return ip_address(host).version == 6
    except ValueError:
        return False


def _is_resolvable(host: str) -> bool:
    """Whether a host name can be looked up; for other names urllib3 raises an error that requests does not catch."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True
