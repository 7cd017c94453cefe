"""The messages of gRPC calls as they arrive, and gRPC's status codes. Does no I/O."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from savedmodel_bakery.serving.admission.budget import Cost
from savedmodel_bakery.serving.admission.limits import SMALL_BYTES, too_large
from savedmodel_bakery.serving.admission.parsing import unpack_all
from savedmodel_bakery.wire.status import Code

STATUS_CODES = {Code(status.value[0]): status for status in grpc.StatusCode}
"""gRPC's status by canonical code. Messages are truncated by `wire.status.truncate_message`."""

_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def check_message_size(message: bytes, maximum: int = SMALL_BYTES) -> None:
    """Check the size of a message that runs no model; callers without a token may send a small one."""
    if len(message) > maximum:
        raise too_large(len(message), maximum, "bytes", limit="max_message_bytes", condition="for this call")


def unpack(message: bytes, limit: int, charge: Callable[[int], None]) -> bytes:
    """Return a message, unpacked if it is compressed with gzip or deflate; raises DecodeError if it is damaged.

    gRPC passes compressed messages on as they are, because it would unpack them without a limit, and does not say which
    are compressed. No request of these services begins as gzip and deflate (RFC 1952, 2.3.1; RFC 1950, 2.2) do.
    `charge` is called with the bytes of memory that are used next; it may raise StatusError.
    """
    if not message.startswith(_COMPRESSED):
        return message
    try:
        return unpack_all(message, limit=limit, before_step=lambda size: charge(Cost.UNPACKED_MESSAGE * size))
    except zlib.error as error:
        raise DecodeError(str(error)) from error


def parse_small(message_class: Any, message: bytes) -> Any:
    """Parse a message that callers without a token may send; raises OverloadError or DecodeError."""
    check_message_size(message)
    return message_class.FromString(unpack(message, SMALL_BYTES, lambda _size: None))
