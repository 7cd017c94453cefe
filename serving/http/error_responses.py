"""Canonical codes to HTTP status codes, and the bodies of responses that report an error."""

from __future__ import annotations

import math
from collections.abc import Sequence

from savedmodel_bakery.serving.http.messages import Request, Response
from savedmodel_bakery.wire.json.status import encode_error
from savedmodel_bakery.wire.status import Code, StatusError

HTTP_STATUS = {
    Code.OK: 200,
    Code.CANCELLED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}


def error_response(error: StatusError) -> Response:
    """Make the response for an error of the API: `{"error": message}`."""
    headers = {}
    if error.code is Code.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"  # RFC 6750, 3
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    return Response(HTTP_STATUS[error.code], encode_error(error.message), headers=headers)


def method_not_allowed(request: Request, methods: Sequence[str]) -> Response:
    """Make the response to a method that a URL does not have, with those that it has."""
    message = f"{request.method} is not allowed for {request.path}: must be {' or '.join(methods)}"
    return Response(405, encode_error(message), headers={"Allow": ", ".join(methods)})


def page(status: int, title: str) -> Response:
    """Make a small HTML page, which the real server sends for requests outside the API."""
    body = f"<HTML><HEAD>\n<TITLE>{status} {title}</TITLE>\n</HEAD><BODY>\n<H1>{title}</H1>\n</BODY></HTML>\n"
    return Response(status, body.encode(), "text/html")
