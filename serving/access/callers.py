"""Whether a caller is on this machine."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from urllib.parse import unquote


def is_loopback(host: str) -> bool:
    """Return whether a host name or IP address is this machine's loopback interface."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:  # an IPv4 caller of a port that listens on `::`
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def is_local_peer(peer: str) -> bool:
    """Return whether a peer, as gRPC names it, called over the loopback interface or a Unix socket.

    Args:
        peer: such as `ipv4:127.0.0.1:40000`, `ipv6:%5B::1%5D:40000` or `unix:` (gRPC's "Name Resolution" document).
    """
    scheme, _, address = peer.partition(":")
    if scheme == "unix":
        return True
    return scheme in ("ipv4", "ipv6") and is_loopback(unquote(address).rpartition(":")[0].strip("[]"))
