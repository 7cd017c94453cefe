"""Requests as they are parsed, however their bytes are divided."""

from __future__ import annotations

import pytest

from savedmodel_bakery.serving.admission.limits import Limits, OverloadError
from savedmodel_bakery.serving.rest.parser import Head, MalformedRequestError, RequestParser

POST = b"POST http://host/a?b#c HTTP/1.1\r\nHost: x\r\nA: \xff\r\nContent-Length: 4\r\n\r\nbody"
GET = b"GET / HTTP/1.0\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


class Received:
    """What a parser has passed on."""

    def __init__(self) -> None:
        self.heads: list[Head] = []
        self.body = b""
        self.complete = 0

    def add_body(self, part: bytes) -> None:
        self.body += part

    def end(self) -> None:
        self.complete += 1


def parse(*parts: bytes, limits: Limits | None = None) -> Received:
    received = Received()
    parser = RequestParser(limits or Limits(), received.heads.append, received.add_body, received.end)
    for part in parts:
        parser.feed(part)
    return received


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_requests_are_the_same_in_whatever_parts_they_arrive(size: int) -> None:
    data = POST + GET
    received = parse(*[data[start : start + size] for start in range(0, len(data), size)])
    first, second = received.heads
    assert ("POST", "/a?b#c", "/a", "\xff") == (
        first.request.method,
        first.request.target,
        first.request.path,
        first.request.headers["a"],
    )
    assert [("1.1", True), ("1.0", False)] == [(head.version, head.keep_alive) for head in (first, second)]
    assert (b"body", 2) == (received.body, received.complete)


def test_connect_ends_the_connection() -> None:
    received = parse(b"CONNECT x:1 HTTP/1.1\r\n\r\n")
    assert [False] == [head.keep_alive for head in received.heads]


@pytest.mark.parametrize(
    ("data", "method"),
    [(b"FOO / HTTP/1.1\r\n\r\n", "FOO"), (b"\x16\x03\x01", None), (b"GET / HTTP/1.1\r\n:\r\n", "GET")],
)
def test_what_is_no_request_is_malformed(data: bytes, method: str | None) -> None:
    with pytest.raises(MalformedRequestError) as error:
        parse(data)
    assert method == error.value.method


@pytest.mark.parametrize(
    "parts",
    [(b"GET /" + b"a" * 100 + b" HTTP/1.1\r\n\r\n",), (b"GET / HTTP/1.1\r\n", b"a: " + b"a" * 100)],
    ids=["complete", "without end"],
)
def test_large_headers_are_rejected(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(OverloadError, match="more than 50 bytes"):
        parse(*parts, limits=Limits(header_bytes=50))


@pytest.mark.parametrize("end", [b"1;" + b"a" * 100, b"0\r\na: " + b"a" * 100 + b"\r\n\r\n"], ids=["chunk", "trailer"])
def test_extensions_and_trailers_of_chunks_are_limited(end: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        parse(CHUNKED, end, limits=Limits(header_bytes=len(CHUNKED)))
