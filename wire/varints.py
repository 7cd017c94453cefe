"""Variable-length integers, and the strings in `tensor_content` that they precede."""

from __future__ import annotations

from typing import Any

from savedmodel_bakery.wire.status import invalid_argument


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
