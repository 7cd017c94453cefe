"""Parses HTTP/1.1 requests of one connection, within the limits of their headers. Does no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

import httptools

from savedmodel_bakery.serving.admission.limits import Limits, OverloadError
from savedmodel_bakery.serving.call.http import Request

_HEAD_BYTES = 2**16
_MAX_HEADERS = 256
_UPGRADE_HEADER = re.compile(rb"^upgrade:[^\r\n]*\r\n", re.IGNORECASE | re.MULTILINE)
_REQUEST_LINE = re.compile(rb"(\S+) \S+ HTTP/1\.[01]\r?\n")
_ORIGIN = re.compile(rb"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//[^/?#]*")  # with or without a scheme (RFC 3986, 4.2)


class MalformedRequestError(Exception):
    """What has arrived is no HTTP request; `method` is that of its first line, if that is the line of a request."""

    def __init__(self, method: str | None) -> None:
        super().__init__(method)
        self.method = method


class Head(NamedTuple):
    """A request whose headers have arrived."""

    request: Request  # without its body
    version: str  # of HTTP, such as `1.1`
    keep_alive: bool  # whether the client may send another request after it


class RequestParser:
    """Parses what a connection receives. Ignores the header Upgrade (RFC 9110, 7.8 allows that).

    Java's HTTP client offers an upgrade to HTTP/2 with every plain request, for which httptools discards the body.

    `on_request` is called when the headers of a request have arrived, `on_body` with each part of its body, which it
    may reject as malformed with ValueError, and `on_end` when the request has been received as a whole.
    """

    def __init__(
        self,
        limits: Limits,
        on_request: Callable[[Head], None],
        on_body: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        self._on_request, self._on_body, self._on_end = on_request, on_body, on_end
        self._max_bytes = limits.header_bytes
        self._parser: Any = httptools.HttpRequestParser(self)
        # Requests after one that ends the connection are not malformed.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._received = b""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._header_bytes = self._framing_bytes = 0
        self._is_in_head = True
        self._error: OverloadError | None = None
        self.is_between = False  # the last request is complete, and nothing of the next one has arrived

    def feed(self, data: bytes) -> None:
        """Parse what has arrived. Clients that offer an upgrade send all headers at once.

        Raises:
            OverloadError: the headers are too large.
            MalformedRequestError: it is no HTTP request.
        """
        self.is_between = False
        if self._is_in_head:
            self._header_bytes += len(data)
            self._received = data[:_HEAD_BYTES]
            if b"pgrade" in self._received and _REQUEST_LINE.match(data):
                head, end, body = data.partition(b"\r\n\r\n")
                data = _UPGRADE_HEADER.sub(b"", head + b"\r\n")[:-2] + end + body
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # after CONNECT, which ends the connection
            return
        except httptools.HttpParserError:
            raise self._error or self._malformed() from None
        if self.is_between:
            self._received = b""
        elif self._is_in_head:
            self._check_size(self._header_bytes)
        elif self._framing_bytes > self._max_bytes:  # a trailer or an extension of a chunk has no end
            raise self._malformed()

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._url, self._headers = b"", []
        self._header_bytes = 0
        self.is_between = False

    def on_url(self, url: bytes) -> None:
        """Collect the target, which comes in parts."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header, or a trailer after a chunked body."""
        self._headers.append((name.lower(), value))
        if len(self._headers) > _MAX_HEADERS:
            raise ValueError("too many headers")  # which take more memory than their bytes
        if not self._is_in_head:
            self._header_bytes += len(name) + len(value)
            if self._header_bytes > self._max_bytes:
                raise ValueError("too many trailers")

    def on_headers_complete(self) -> None:
        """Pass the head on."""
        self._check_size(len(self._url) + sum(map(len, chain.from_iterable(self._headers))))
        self._header_bytes = self._framing_bytes = 0
        self._is_in_head = False
        origin = _ORIGIN.match(self._url)
        target = self._url[origin.end() :] if origin else self._url
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._headers}
        request = Request(self._parser.get_method().decode("latin-1"), target.decode("latin-1"), headers)
        keep_alive = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        self._on_request(Head(request, self._parser.get_http_version(), keep_alive))

    def on_body(self, part: bytes) -> None:
        """Pass a part of the body on."""
        self._framing_bytes = 0
        self._on_body(part)

    def on_message_complete(self) -> None:
        """End a request."""
        self._is_in_head = self.is_between = True
        self._header_bytes = 0
        self._on_end()

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            self._error = OverloadError(
                f"the headers of the request have more than {self._max_bytes} bytes, which is the limit "
                "(--max_header_bytes)",
                limit="max_header_bytes",
            )
            raise self._error

    def _malformed(self) -> MalformedRequestError:
        line = _REQUEST_LINE.match(self._received)
        return MalformedRequestError(line[1].decode("latin-1") if line else None)
