"""Canonical codes as gRPC's status codes, and messages as tensorflow_model_server cuts them."""

from __future__ import annotations

import grpc

from savedmodel_bakery.wire.status import Code

STATUS_CODES = {Code(status.value[0]): status for status in grpc.StatusCode}

_MAX_MESSAGE_BYTES = 1024
_MARK = "...TRUNCATED"


def cut(message: str) -> str:
    """`message`, or its first 1024 bytes with a mark: it travels in a header, whose size clients limit."""
    encoded = message.encode()
    if len(encoded) <= _MAX_MESSAGE_BYTES:
        return message
    return encoded[:_MAX_MESSAGE_BYTES].decode(errors="ignore") + _MARK
