"""HTTP requests and responses. Does no I/O."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from savedmodel_bakery.serving.admission.context import RequestContext

_STEP_BYTES = 2**20
_MAX_RATIO = 1032  # of deflate (zlib's technical details)
_UNPACKED_COPIES = 2  # in pieces, and joined


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


def decode_body(request: Request, context: RequestContext, max_unpacked_bytes: int) -> bytes:
    """Return the body, decompressed if it is gzipped; a body that is damaged or too large counts as empty.

    Raises:
        StatusError: there is not enough memory for the decompressed body, or the request has ended.
    """
    if "gzip" not in request.headers.get("content-encoding", ""):
        return request.body
    decompressor = zlib.decompressobj(wbits=31)
    pieces, size, packed = [], 0, request.body
    while not decompressor.eof and size <= max_unpacked_bytes:
        context.check()
        step = min(_STEP_BYTES, max_unpacked_bytes + 1 - size)
        context.charge(_UNPACKED_COPIES * min(step, len(packed) * _MAX_RATIO))
        try:
            piece = decompressor.decompress(packed, step)
        except zlib.error:
            return b""
        if not piece and not decompressor.eof:
            return b""  # cut off
        pieces.append(piece)
        size += len(piece)
        packed = decompressor.unconsumed_tail
    return b"".join(pieces) if decompressor.eof and size <= max_unpacked_bytes else b""
