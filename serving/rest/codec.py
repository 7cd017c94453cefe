"""HTTP requests and responses. Does no I/O."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

_MAX_UNPACKED_BYTES = 100 * 2**20


@dataclass(frozen=True)
class Request:
    """An HTTP request.

    Attributes:
        method: as sent.
        target: path, query and fragment, as sent except for scheme and host.
        headers: by name in lower case.
        body: as sent.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(repr=False)  # may contain a token
    body: bytes


@dataclass(frozen=True)
class Response:
    """An HTTP response."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def decode_body(request: Request) -> bytes:
    """Return the body, decompressed if it is gzipped; a body that is damaged or too large counts as empty."""
    if "gzip" not in request.headers.get("content-encoding", ""):
        return request.body
    decompressor = zlib.decompressobj(wbits=31)
    try:
        body = decompressor.decompress(request.body, _MAX_UNPACKED_BYTES + 1)
    except zlib.error:
        return b""
    return body if decompressor.eof and len(body) <= _MAX_UNPACKED_BYTES else b""
