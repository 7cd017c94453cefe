"""Compressed messages are unpacked within limits."""

from __future__ import annotations

import gzip
import zlib

import pytest
from google.protobuf.message import DecodeError

from savedmodel_bakery.serving.grpc.codec import check_message_size, unpack
from savedmodel_bakery.wire.status import StatusError

CONTENT = b"\n" + bytes(3_000_000)


@pytest.mark.parametrize("packed", [CONTENT, gzip.compress(CONTENT), zlib.compress(CONTENT)])
def test_messages_are_unpacked(packed: bytes) -> None:
    assert CONTENT == unpack(packed, len(CONTENT), lambda _: None)


def test_the_unpacked_size_is_limited_and_charged_meanwhile() -> None:
    charged: list[int] = []
    reason = r"RESOURCE_EXHAUSTED: .* more than 1500000 bytes \(--max_unpacked_bytes\)"
    with pytest.raises(StatusError, match=reason):
        unpack(gzip.compress(CONTENT), 1_500_000, charged.append)
    assert 1_500_000 < sum(charged) < 10_000_000


@pytest.mark.parametrize("damaged", [gzip.compress(CONTENT)[:-9], b"\x1f\x8b", b"\x78\x9c" + b"x" * 99])
def test_damaged_messages(damaged: bytes) -> None:
    with pytest.raises(DecodeError):
        unpack(damaged, 10**9, lambda _: None)


def test_messages_of_callers_without_a_token_are_small() -> None:
    check_message_size(bytes(65536))
    with pytest.raises(StatusError, match="the request has 65537 bytes; at most 65536 are allowed for this call"):
        check_message_size(bytes(65537))
