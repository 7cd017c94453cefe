"""Estimates what a message takes when protobuf parses it, before it is parsed.

A field of two bytes may become a message of hundreds, so a message of some megabytes could take all memory of a server.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from savedmodel_bakery.wire.encoding import DELIMITED, message_fields
from savedmodel_bakery.wire.status import StatusError

MAX_FIELDS = 20_000
"""Fields that are looked at, which takes up to 30 ms. Requests have fewer, unless they contain tables or many texts."""

# Bytes of memory, measured with protobuf's C library (upb). A message has an object and an entry in a list; the room of
# a full list is doubled, and the earlier lists stay until the whole message is freed.
_PER_FIELD = 256
_PER_BYTE = 64  # of fields that aren't looked at
_PER_BYTE_OF_REQUEST = 256  # of those that are fields of the request itself, and become objects of Python too
_PER_VARINT_BYTE = 4  # and per byte of the type that it becomes

_WIDTHS = {
    **dict.fromkeys((FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_SINT64), 8),
    **dict.fromkeys((FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_SINT32), 4),
    FieldDescriptor.TYPE_ENUM: 4,
    FieldDescriptor.TYPE_BOOL: 1,
}
"""Bytes of a value by the types whose values are varints."""

_SMALL_BYTES = 4096
_MAX_DEPTH = 100  # of messages in messages, as in protobuf


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
    return {field.number: field.message_type or _WIDTHS.get(field.type, 0) for field in descriptor.fields}
