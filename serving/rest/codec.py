"""HTTP requests and responses. Does no I/O."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.unpacking import unpack

_GZIP = 16 + zlib.MAX_WBITS
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

    def before_step(size: int) -> None:
        context.check()
        context.charge(_UNPACKED_COPIES * size)

    try:
        body = unpack(request.body, wbits=_GZIP, limit=max_unpacked_bytes, before_step=before_step)
    except zlib.error:
        return b""
    return body if len(body) <= max_unpacked_bytes else b""
