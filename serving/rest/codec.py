"""The URLs of TensorFlow Serving's REST API, and the bodies of its requests. Does no I/O."""

from __future__ import annotations

import re
import zlib

from savedmodel_bakery.serving.admission import costs
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.unpacking import unpack
from savedmodel_bakery.serving.http.messages import Request

_GZIP = 16 + zlib.MAX_WBITS

_NAME, _CHOICE = r"/([^/:]+)", r"(?:/versions/([0-9]+)|/labels/([^/:]+))?"
_CALL_URL = re.compile(rf"/v1/models{_NAME}{_CHOICE}:(?-i:(classify|regress|predict))", re.IGNORECASE)
_MODEL_URL = re.compile(rf"/v1/models(?:{_NAME})?{_CHOICE}(/metadata)?", re.IGNORECASE)


def match_call(request: Request) -> re.Match[str] | None:
    """Match the URL of a call: model name, version, label and verb; None for other requests."""
    return _CALL_URL.fullmatch(request.target) if request.method == "POST" else None


def match_question(request: Request) -> re.Match[str] | None:
    """Match the URL of a question: model name, version, label and `/metadata`; None for other requests."""
    return _MODEL_URL.fullmatch(request.target) if request.method == "GET" else None


def decode_body(request: Request, context: RequestContext, max_unpacked_bytes: int) -> bytes:
    """Return the body, decompressed if it is gzipped; a body that is damaged or too large counts as empty.

    Raises:
        StatusError: there is not enough memory for the decompressed body, or the request has ended.
    """
    if "gzip" not in request.headers.get("content-encoding", ""):
        return request.body

    def before_step(size: int) -> None:
        context.check()
        context.charge(costs.UNPACKED * size)

    try:
        body = unpack(request.body, wbits=_GZIP, limit=max_unpacked_bytes, before_step=before_step)
    except zlib.error:
        return b""
    return body if len(body) <= max_unpacked_bytes else b""
