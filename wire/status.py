"""Canonical status codes, and the error that carries one from a model to a caller over every transport."""

from __future__ import annotations

from enum import IntEnum

_MAX_HEADER_BYTES = 1024


class Code(IntEnum):
    """Canonical status codes, with the numbers of gRPC and TensorFlow (google/rpc/code.proto)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class StatusError(Exception):
    """A request failed.

    Bytes of a graph's text that are not UTF-8 are surrogate escapes in `message`, which is meant for the caller.
    `retry_after_s` is None if the server can't say when to try again; `limit` is the name of the limit that the request
    exceeds, if that is the reason.
    """

    def __init__(
        self, code: Code, message: str, *, retry_after_s: float | None = None, limit: str | None = None
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        self.limit = limit

    @property
    def text(self) -> str:
        """The message as valid Unicode, with a replacement character for each byte that is not UTF-8."""
        return self.message.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def __str__(self) -> str:
        return f"{self.code.name}: {self.text}"


def invalid_argument(message: str) -> StatusError:
    """Return an INVALID_ARGUMENT error."""
    return StatusError(Code.INVALID_ARGUMENT, message)


def truncate_message(message: str) -> str:
    """Limit a message that is sent in a header to 1024 bytes plus a suffix, as tensorflow_model_server does.

    Cuts between characters. Bytes that are not UTF-8 stay surrogate escapes.
    """
    encoded = message.encode("utf-8", "surrogateescape")
    if len(encoded) <= _MAX_HEADER_BYTES:
        return message
    return cut(encoded, _MAX_HEADER_BYTES) + "...TRUNCATED"


def cut(encoded: bytes, size: int) -> str:
    """Return at most the first `size` bytes of a text, cut between characters, which have four bytes at most."""
    ends = range(size, max(size - 4, -1), -1)
    end = next((end for end in ends if encoded[end] & 0xC0 != 0x80), size)
    return encoded[:end].decode("utf-8", "surrogateescape")
