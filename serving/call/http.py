"""HTTP requests and responses, those that report errors, and where a request goes. Does no I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.wire.responses import encode_error
from savedmodel_bakery.wire.status import Code, StatusError

NOSNIFF = {"X-Content-Type-Options": "nosniff"}
"""The header that keeps a browser from guessing another type of a response (Fetch standard, 3.6)."""

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

_PHRASES = {status.value: status.phrase for status in HTTPStatus}


@dataclass
class Request:
    """An HTTP request."""

    method: str
    target: str  # path, query and fragment, as sent except for scheme and host
    headers: Mapping[str, str] = field(repr=False)  # by name in lower case; may contain a token
    body: bytes = b""  # empty until it has been received
    path: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.path = self.target.partition("?")[0].partition("#")[0]


@dataclass(frozen=True)
class Response:
    """An HTTP response."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def decode_name(part: str | None, *, errors: str = "replace") -> str:
    """Return a percent-encoded part of a URL; an empty string for None.

    No model has a name with bytes that are not valid UTF-8. By default they are replaced, so that an error that names
    them is valid JSON; with `errors` "surrogateescape" it contains the same bytes, as the real server's does.
    """
    return unquote(part or "", errors=errors)


def encode_response(response: Response, method: str, *, keep_alive: bool, version: str = "1.1") -> tuple[bytes, bytes]:
    """Return the head and the body of a response as they are sent over HTTP/1.1; HEAD gets no body.

    A client of HTTP/1.0 that asks for keep-alive gets a header that confirms it.
    """
    lines = [
        f"HTTP/1.1 {response.status} {_PHRASES.get(response.status, '')}",
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        *(f"{name}: {value}" for name, value in response.headers.items()),
    ]
    if not keep_alive:
        lines.append("Connection: close")
    elif version == "1.0":
        lines.append("Connection: keep-alive")
    head = "\r\n".join([*lines, "\r\n"]).encode()
    return head, b"" if method == "HEAD" else response.body


def error_response(error: StatusError) -> Response:
    """Make the response for an error of the API: `{"error": message}`."""
    headers = {}
    if error.code is Code.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"  # RFC 6750, 3
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    return Response(HTTP_STATUS[error.code], encode_error(error.message), headers=headers)


def page(status: int, title: str) -> Response:
    """Make a small HTML page, which the real server sends for requests outside the API."""
    body = f"<HTML><HEAD>\n<TITLE>{status} {title}</TITLE>\n</HEAD><BODY>\n<H1>{title}</H1>\n</BODY></HTML>\n"
    return Response(status, body.encode(), "text/html")


class Route(NamedTuple):
    """Where a request goes."""

    handle: Callable[[Request, RequestContext], Response]  # of a request that is authorized and complete
    model_name: str = ""  # that the URL names, for the metrics
    api: str | None = ""  # the name of the call in the metrics; None to not count the request
    runs_model: bool = False  # such a request waits for its turn
    takes_body: bool = False  # it has a body without running a model
    is_instant: bool = False  # the response is made at once, without a place, so that nobody can prevent it
    is_page: bool = False  # the response is that of the server itself, without the headers of the APIs
    on_error: Callable[[StatusError], Response] = error_response


FindRoute = Callable[[Request], Route | None]
"""Returns where a request goes, by its method and target; None if the URL is not one of this API."""


def _preflight(request: Request, _: RequestContext) -> Response:
    origin = request.headers.get("origin", "")
    return Response(200 if "http://" in origin or "https://" in origin else 400, b"", "text/html; charset=ISO-8859-1")


PREFLIGHT = Route(_preflight, api=None)
"""Responds to OPTIONS, with which browsers ask what they may send, as tensorflow_model_server; CORS headers follow."""


def method_not_allowed(allowed: Sequence[str], request: Request, _: RequestContext) -> Response:
    """Respond to a method that a URL does not have, with those that it has."""
    message = f"{request.method} is not allowed for {request.path}: must be {' or '.join(allowed)}"
    return Response(405, encode_error(message), headers={"Allow": ", ".join(allowed)})
