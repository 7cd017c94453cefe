"""PredictRequest and PredictResponse with their large values kept outside the protobuf message, as attachments.

Protobuf copies an array when it is put into a message, and again when the message is serialized or parsed. Here large
values are joined to the serialized message once, and a parsed message refers to them in place. The serialized form is
ordinary protobuf (protobuf.dev/programming-guides/encoding). Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError, EncodeError

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.dtypes import DType, of_array
from savedmodel_bakery.wire.encoding import DELIMITED, message_fields, varint
from savedmodel_bakery.wire.status import StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import RAW_TAGS, decode_array, encode_tensor, fill_head, raw_field

LARGE_BYTES = 1 << 20
"""Smaller values stay in the message: copying them is cheaper than detaching them."""

MAX_MESSAGE_BYTES = 2**31 - 1
"""Protobuf's limit (protobuf.dev/programming-guides/proto-limits)."""

_MAX_FIELDS = 1000  # of a message that is searched for large tensors
_KEY_TAG, _VALUE_TAG = 1 << 3 | DELIMITED, 2 << 3 | DELIMITED  # the two fields of a map entry
_RAW_FIELDS = {tag[0] >> 3: name for name, tag in RAW_TAGS.items()}


class DetachedTensor(NamedTuple):
    """A tensor whose values are kept outside its message."""

    proto: Any  # the TensorProto without its values
    field: str  # of the TensorProto, one of `RAW_TAGS`
    values: Any  # bytes


class TensorMessage:
    """A PredictRequest or PredictResponse and the large tensors detached from it; `field` is the map of its tensors."""

    def __init__(self, message: Any, field: str, attachments: dict[str, DetachedTensor] | None = None) -> None:
        self.message = message
        self.attachments = attachments or {}
        self._field = field

    def add(
        self,
        alias: str,
        array: np.ndarray,
        *,
        packed: bool,
        packed_strings: bool = False,
        dtype: DType | None = None,
        shape: Sequence[int] | None = None,
    ) -> None:
        """Add a tensor; arguments as for `encode_tensor`. Don't change the array before the message is serialized."""
        dtype = dtype or of_array(array)
        field = raw_field(dtype, packed=packed)
        if array.nbytes < LARGE_BYTES or field is None:
            proto = getattr(self.message, self._field)[alias]
            encode_tensor(array, packed=packed, packed_strings=packed_strings, dtype=dtype, shape=shape, into=proto)
            return
        head = schema.TensorProto()
        fill_head(head, dtype, array.shape if shape is None else shape)
        values = np.asarray(array, dtype=dtype.numpy, order="C")
        self.attachments[alias] = DetachedTensor(head, field, values.reshape(-1).view(np.uint8))

    def arrays(self) -> dict[str, np.ndarray]:
        """Decode all tensors; see `decode_array`."""
        protos = getattr(self.message, self._field)
        arrays = {alias: decode_array(protos[alias]) for alias in protos}
        for alias, tensor in self.attachments.items():
            arrays[alias] = decode_array(tensor.proto, (tensor.field, tensor.values))
        return arrays

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name that protobuf messages have
        """Serialize the message with its attachments."""
        fields: list[Any] = []
        for alias, tensor in self.attachments.items():
            fields += [self._entry_head(alias, tensor), tensor.values]
        return serialize_with(self.message, fields)

    def _entry_head(self, alias: str, tensor: DetachedTensor) -> bytes:
        """Serialize a map entry up to the values of its tensor, which come last."""
        size = len(tensor.values)
        proto: bytes = tensor.proto.SerializeToString() + RAW_TAGS[tensor.field] + varint(size)
        key = alias.encode()
        entry = varint(_KEY_TAG) + varint(len(key)) + key + varint(_VALUE_TAG) + varint(len(proto) + size) + proto
        number = self.message.DESCRIPTOR.fields_by_name[self._field].number
        return varint(number << 3 | DELIMITED) + varint(len(entry) + size) + entry


def parse_message(message_class: Any, field: str, content: bytes) -> TensorMessage:
    """Parse a message, whose map of tensors is `field`; its large values stay in `content`."""
    parts: list[memoryview] = []
    attachments: dict[str, DetachedTensor] = {}
    if len(content) >= LARGE_BYTES:
        number = message_class.DESCRIPTOR.fields_by_name[field].number
        # If the message is malformed or unusual, protobuf reports what is wrong or applies its own rules.
        with suppress(StatusError, UnicodeDecodeError, DecodeError):
            parts, attachments = _detach(memoryview(content), number << 3 | DELIMITED)
    return TensorMessage(message_class.FromString(b"".join(parts) if attachments else content), field, attachments)


def serialize_with(message: Any, fields: Sequence[Any]) -> bytes:
    """Serialize a message, followed by the pieces of more fields; refuse one above `MAX_MESSAGE_BYTES`."""
    name = message.DESCRIPTOR.name
    try:
        pieces = [message.SerializeToString(), *fields]
    except EncodeError as error:
        raise invalid_argument(
            f"{name} cannot be serialized; a protobuf message has at most {MAX_MESSAGE_BYTES} bytes"
        ) from error
    size = sum(map(len, pieces))
    if size > MAX_MESSAGE_BYTES:
        raise invalid_argument(f"{name} has {size} bytes; a protobuf message has at most {MAX_MESSAGE_BYTES}")
    return b"".join(pieces)


def _some_fields(content: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of a message; raise StatusError if they are more than one with large tensors has."""
    for number, field in enumerate(message_fields(content)):
        if number == _MAX_FIELDS:
            raise invalid_argument(f"more than {_MAX_FIELDS} fields")
        yield field


def _detach(content: memoryview, map_tag: int) -> tuple[list[memoryview], dict[str, DetachedTensor]]:
    """Split a message into its other parts and the large tensors of the map with this tag."""
    parts, aliases, attachments = [], set(), {}
    for tag, start, body, end in _some_fields(content):
        tensor = None
        if tag == map_tag:
            alias, proto = _parse_entry(content[body:end])
            if alias in aliases:
                raise invalid_argument(f'alias "{alias}" is repeated')
            aliases.add(alias)
            if len(proto) >= LARGE_BYTES and (tensor := _detach_values(proto)):
                attachments[alias] = tensor
        if tensor is None:
            parts.append(content[start:end])
    return parts, attachments


def _parse_entry(content: memoryview) -> tuple[str, memoryview]:
    """Return the alias of a map entry and its serialized TensorProto."""
    fields = list(islice(message_fields(content), 3))
    if [tag for tag, *_ in fields] != [_KEY_TAG, _VALUE_TAG]:
        raise invalid_argument("a map entry is not one key followed by one value")
    alias, proto = (content[body:end] for _, _, body, end in fields)
    return str(alias, "utf-8"), proto


def _detach_values(content: memoryview) -> DetachedTensor | None:
    """Split a TensorProto into its head and its values; None if the values are not one large piece."""
    head, pieces = [], []
    for tag, start, body, end in _some_fields(content):
        field = _RAW_FIELDS.get(tag >> 3)
        if field is None:
            head.append(content[start:end])
        elif end - body < LARGE_BYTES:
            return None
        else:
            pieces.append((field, content[body:end]))
    if len(pieces) != 1:
        return None
    return DetachedTensor(schema.TensorProto.FromString(b"".join(head)), *pieces[0])
