"""HTTP requests and responses. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import unquote

NOSNIFF = {"X-Content-Type-Options": "nosniff"}
"""The header that keeps a browser from guessing another type of a response (Fetch standard, 3.6)."""

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
