"""The encoding of protobuf messages (protobuf.dev/programming-guides/encoding), and of strings in `tensor_content`.

Also estimates what a message takes when protobuf parses it, before it is parsed: a field of two bytes may become a
message of hundreds, so a message of some megabytes could take all memory of a server.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from savedmodel_bakery.wire.status import StatusError, invalid_argument

_VARINT, _FIXED64, DELIMITED, _FIXED32 = 0, 1, 2, 5  # wire types

MAX_FIELDS = 20_000
"""Fields that are looked at, which takes up to 30 ms. Requests have fewer, unless they contain tables or many texts."""

# Bytes of memory, measured with protobuf's C library (upb). A message has an object and an entry in a list; the room of
# a full list is doubled, and the earlier lists stay until the whole message is freed.
_PER_FIELD = 256
_PER_BYTE = 64  # of fields that aren't looked at
_PER_BYTE_OF_REQUEST = 256  # of those that are fields of the request itself, and become objects of Python too
_PER_VARINT_BYTE = 4  # and per byte of the type that it becomes
_SMALL_BYTES = 4096
_MAX_DEPTH = 100  # of messages in messages, as in protobuf


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


def parsed_size(message_class: Any, content: bytes) -> int:
    """Return how many bytes of memory parsing takes at most, beside a copy of the content.

    0 if the message is so small that it takes no megabyte. Of more than MAX_FIELDS, the rest counts as the smallest.
    """
    if len(content) <= _SMALL_BYTES:
        return 0
    return _Survey().size(message_class.DESCRIPTOR, memoryview(content), depth=0)


class _Survey:
    def __init__(self) -> None:
        self._fields = 0

    def size(self, descriptor: Any, content: memoryview, *, depth: int) -> int:
        total = seen = 0
        inner = _inner(descriptor)
        try:
            for tag, _, body, end in message_fields(content):
                if self._fields == MAX_FIELDS or depth > _MAX_DEPTH:
                    break
                self._fields += 1
                total += _PER_FIELD
                contained = inner.get(tag >> 3, 0) if tag & 7 == DELIMITED else 0
                if isinstance(contained, int):
                    total += _PER_VARINT_BYTE * contained * (end - body)
                else:
                    total += self.size(contained, content[body:end], depth=depth + 1)
                seen = end
        except StatusError:  # malformed, or something that protobuf skips
            pass
        return total + (_PER_BYTE if depth else _PER_BYTE_OF_REQUEST) * (len(content) - seen)


@functools.cache
def _inner(descriptor: Any) -> dict[int, Any]:
    """Return what delimited fields contain, by number: the descriptor of a message, or the width of varints."""
    widths = _varint_widths()
    return {field.number: field.message_type or widths.get(field.type, 0) for field in descriptor.fields}


@functools.cache
def _varint_widths() -> dict[int, int]:
    """Return the bytes of a value by the types whose values are varints."""
    from google.protobuf.descriptor import FieldDescriptor as Field  # not at the top: REST clients do without protobuf

    return {
        **dict.fromkeys((Field.TYPE_INT64, Field.TYPE_UINT64, Field.TYPE_SINT64), 8),
        **dict.fromkeys((Field.TYPE_INT32, Field.TYPE_UINT32, Field.TYPE_SINT32), 4),
        Field.TYPE_ENUM: 4,
        Field.TYPE_BOOL: 1,
    }
