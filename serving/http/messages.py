"""HTTP requests and responses. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

NOSNIFF = {"X-Content-Type-Options": "nosniff"}
"""The header that keeps a browser from guessing another type of a response (Fetch standard, 3.6)."""


@dataclass
class Request:
    """An HTTP request.

    Attributes:
        method: as sent.
        target: path, query and fragment, as sent except for scheme and host.
        headers: by name in lower case.
        body: as sent; empty until it has been received.
        path: of the target.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(repr=False)  # may contain a token
    body: bytes = b""
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
