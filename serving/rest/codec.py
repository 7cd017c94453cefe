"""HTTP requests with the URLs of TensorFlow Serving's REST API, and responses. Does no I/O."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.unpacking import unpack

_GZIP = 16 + zlib.MAX_WBITS
_UNPACKED_COPIES = 2  # in pieces, and joined


_NAME, _CHOICE = r"/([^/:]+)", r"(?:/versions/([0-9]+)|/labels/([^/:]+))?"
_CALL_URL = re.compile(rf"/v1/models{_NAME}{_CHOICE}:(?-i:(classify|regress|predict))", re.IGNORECASE)
_MODEL_URL = re.compile(rf"/v1/models(?:{_NAME})?{_CHOICE}(/metadata)?", re.IGNORECASE)


@dataclass
class Request:
    """An HTTP request.

    Attributes:
        method: as sent.
        target: path, query and fragment, as sent except for scheme and host.
        headers: by name in lower case.
        body: as sent; empty until it has been received.
        path: of the target.
        call: the match of the URL of a call: model name, version, label and verb; None for other requests.
        question: the match of the URL of a question: model name, version, label and `/metadata`; None for others.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(repr=False)  # may contain a token
    body: bytes = b""
    path: str = field(init=False, repr=False)
    call: re.Match[str] | None = field(init=False, repr=False)
    question: re.Match[str] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.path = self.target.partition("?")[0].partition("#")[0]
        self.call = _CALL_URL.fullmatch(self.target) if self.method == "POST" else None
        self.question = _MODEL_URL.fullmatch(self.target) if self.method == "GET" else None


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
