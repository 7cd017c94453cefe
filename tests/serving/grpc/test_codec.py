"""Compressed messages are unpacked within limits; status codes and messages of errors are gRPC's."""

from __future__ import annotations

import gzip
import zlib

import grpc
import pytest
from google.protobuf.message import DecodeError

from savedmodel_bakery.serving.grpc.codec import STATUS_CODES, check_message_size, unpack
from savedmodel_bakery.wire.status import Code, StatusError, truncate_message

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


@pytest.mark.parametrize("code", Code)
def test_every_code_has_the_grpc_code_of_its_name_and_number(code: Code) -> None:
    assert (code.name, code.value) == (STATUS_CODES[code].name, STATUS_CODES[code].value[0])


def test_the_table_has_all_grpc_codes() -> None:
    assert set(grpc.StatusCode) == set(STATUS_CODES.values())


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1024 + "...TRUNCATED"),
        ("x" * 1023 + "ü", "x" * 1023 + "...TRUNCATED"),
    ],
    ids=["1024 bytes", "1025 bytes", "a character across the limit"],
)
def test_messages_are_truncated_to_1024_bytes(message: str, expected: str) -> None:
    assert expected == truncate_message(message)
