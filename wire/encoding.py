"""The encoding of protobuf messages (protobuf.dev/programming-guides/encoding), and of strings in `tensor_content`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from savedmodel_bakery.wire.status import invalid_argument

_VARINT, _FIXED64, DELIMITED, _FIXED32 = 0, 1, 2, 5  # wire types


def varint(value: int) -> bytes:
    """Encode a number as a protobuf varint."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_varint(content: Any, start: int) -> tuple[int, int]:
    """Decode the protobuf varint at `start`; return its value and the offset of its end."""
    value = 0
    for index, byte in enumerate(content[start : start + 10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, start + index + 1
    raise invalid_argument(f"invalid varint at byte {start}: it is cut off or longer than 10 bytes")


def delimited_field(number: int, content: bytes) -> bytes:
    """Encode a field of bytes, text or a message."""
    return varint(number << 3 | DELIMITED) + varint(len(content)) + content


def field_numbers(content: bytes) -> set[int]:
    """Return the numbers of the fields that a serialized message has, including unknown ones."""
    return {tag >> 3 for tag, *_ in message_fields(memoryview(content))}


def message_fields(content: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yield each field's tag, the offset of that tag, and the start and end of the field's body."""
    end = 0
    while end < len(content):
        start = end
        tag, body = read_varint(content, start)
        wire_type = tag & 7
        if wire_type == _VARINT:
            _, end = read_varint(content, body)
        elif wire_type == DELIMITED:
            size, body = read_varint(content, body)
            end = body + size
        elif wire_type in (_FIXED64, _FIXED32):
            end = body + (8 if wire_type == _FIXED64 else 4)
        else:
            raise invalid_argument(f"unknown wire type {wire_type}")
        if end > len(content):
            raise invalid_argument("a field ends beyond its message")
        yield tag, start, body, end


def pack_strings(strings: list[bytes]) -> bytes:
    """Write all lengths as varints, then all bytes (tensorflow/core/platform/tensor_coding.cc, EncodeStringList)."""
    return b"".join(varint(len(string)) for string in strings) + b"".join(strings)


def unpack_strings(content: Any, count: int) -> list[bytes]:
    """Read what `pack_strings` writes."""
    lengths, start = [], 0
    for _ in range(count):
        length, start = read_varint(content, start)
        lengths.append(length)
    if start + sum(lengths) != len(content):
        raise invalid_argument(
            f"tensor_content has {len(content)} bytes; the lengths of its strings need {start + sum(lengths)}"
        )
    strings = []
    for length in lengths:
        strings.append(bytes(content[start : start + length]))
        start += length
    return strings
