"""Predict messages whose arrays are too large to be copied about: written in one pass, read where they lie.

Protobuf's own code copies an array when it is put into a message, when that is put into another, and when all of it is
written, and again on the way back. Here the values of a large tensor stay outside of the message, which is otherwise
protobuf's: a map entry is written and found by the rules of protobuf.dev/programming-guides/encoding.

Values are written where they will be aligned for vector instructions in the memory of who reads them, so that
TensorFlow too takes them as they lie: before them, TensorProto's `version_number`, which is 0 anyway, is repeated as
often as it takes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError, EncodeError

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.dtypes import DType, of_array, of_number
from savedmodel_bakery.wire.status import StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import (
    RAW_TAGS,
    decode_array,
    encode_tensor,
    fill_head,
    raw_field,
    read_varint,
    varint,
)

LARGE_BYTES = 1 << 20
"""What is smaller than this stays in the message: copying it costs less than the care."""

MAX_MESSAGE_BYTES = 2**31 - 1
"""Protobuf's limit (protobuf.dev/programming-guides/proto-limits)."""

ALIGNMENT = 64
"""TensorFlow copies arrays that don't begin at a multiple of it (EIGEN_MAX_ALIGN_BYTES), in bytes."""

_MAPPED_BYTES = 32 << 20  # from here on malloc of glibc takes pages for each piece (M_MMAP_THRESHOLD of mallopt(3))
# Where those of such a piece do in a `bytes`, beyond a page, behind the heads of malloc and of CPython.
_BYTES_BEGIN = 48
# Threads: most of the time of a large copy goes into pages that the system hands out.
_COPIERS = min(4, len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)
_new_bytes = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)
_PADDINGS = tuple(b"\x18\x00" * pairs + b"\x18\x80\x00" * odd for pairs in range(ALIGNMENT) for odd in (0, 1))
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_KEY, _VALUE = 1, 2  # the fields of a map's entry
_FIELDS = {tag[0] >> 3: name for name, tag in RAW_TAGS.items()}


class DetachedTensor(NamedTuple):
    """A tensor whose values stand outside of its message.

    Attributes:
        proto: the TensorProto without them.
        field: where they belong, one of `RAW_TAGS`.
        values: their bytes.
    """

    proto: Any
    field: str
    values: Any


class TensorMessage:
    """A PredictRequest or a PredictResponse, with tensors that belong into its map of them.

    Args:
        message: it, with the small ones.
        field: the map's name, `inputs` or `outputs`.
    """

    def __init__(self, message: Any, field: str) -> None:
        self.message = message
        self.attachments: dict[str, DetachedTensor] = {}
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
        """Add a tensor, as `encode_tensor` does; an array must not change before all is written."""
        kind = dtype or of_array(array)
        field = raw_field(kind, packed=packed)
        if array.nbytes < LARGE_BYTES or field is None:
            into = getattr(self.message, self._field)[alias]
            encode_tensor(array, packed=packed, packed_strings=packed_strings, dtype=kind, shape=shape, into=into)
            return
        head = schema.TensorProto()
        fill_head(head, kind, array.shape if shape is None else shape)
        values = np.asarray(array, dtype=kind.numpy, order="C")
        self.attachments[alias] = DetachedTensor(head, field, values.reshape(-1).view(np.uint8))

    def tensors(self) -> dict[str, np.ndarray]:
        """All of them, decoded; see `decode_array`."""
        protos = getattr(self.message, self._field)
        found = {alias: decode_array(protos[alias]) for alias in protos}
        return found | {
            alias: decode_array(one.proto, (one.field, one.values)) for alias, one in self.attachments.items()
        }

    def dtypes(self) -> dict[str, DType]:
        """Element types of all of them.

        Raises:
            StatusError: INVALID_ARGUMENT for one that doesn't travel.
        """
        protos = getattr(self.message, self._field)
        heads = {alias: protos[alias] for alias in protos} | {
            alias: one.proto for alias, one in self.attachments.items()
        }
        return {alias: of_number(head.dtype) for alias, head in heads.items()}

    def SerializeToString(self) -> bytes:  # noqa: N802 - as messages have it
        """Write all of it.

        Raises:
            StatusError: INVALID_ARGUMENT where it is larger than protobuf allows.
        """
        inside = sum(one.values.nbytes for one in self.attachments.values())
        if inside <= MAX_MESSAGE_BYTES:
            pieces = self._pieces()
            size = sum(map(len, pieces))
            if size <= MAX_MESSAGE_BYTES:
                return _join(pieces, size)
            inside = size
        raise invalid_argument(
            f"{self.message.DESCRIPTOR.name} takes {inside} bytes; a message of protobuf holds {MAX_MESSAGE_BYTES} "
            "at most"
        )

    def _pieces(self) -> list[Any]:
        try:
            pieces: list[Any] = [self.message.SerializeToString()]
        except EncodeError as error:
            raise invalid_argument(
                f"{self.message.DESCRIPTOR.name} cannot be written; a message of protobuf holds {MAX_MESSAGE_BYTES} "
                "bytes at most"
            ) from error
        at = len(pieces[0])
        size = at + sum(one.values.nbytes for one in self.attachments.values())
        paddings = _PADDINGS if _MAPPED_BYTES <= size <= MAX_MESSAGE_BYTES - LARGE_BYTES else ()
        for alias, tensor in self.attachments.items():
            content = tensor.proto.SerializeToString()
            heads = (self._head(alias, tensor, content + padding) for padding in paddings)
            aligned = (head for head in heads if (_BYTES_BEGIN + at + len(head)) % ALIGNMENT == 0)
            head = next(aligned, None) or self._head(alias, tensor, content)
            pieces += [head, tensor.values]
            at += len(head) + tensor.values.nbytes
        return pieces

    def _head(self, alias: str, tensor: DetachedTensor, content: bytes) -> bytes:
        """What stands before the values in the map's entry; `content` is the rest of the TensorProto."""
        size = tensor.values.nbytes
        head = content + RAW_TAGS[tensor.field] + varint(size)
        key = alias.encode()
        opening = _tag(_KEY) + varint(len(key)) + key + _tag(_VALUE) + varint(len(head) + size)
        field = self.message.DESCRIPTOR.fields_by_name[self._field]
        return _tag(field.number) + varint(len(opening) + len(head) + size) + opening + head


def copy(array: np.ndarray) -> np.ndarray:
    """A copy of an array that is contiguous, with elements that are no objects: aligned, and it can be written to."""
    room, values = _room(array.nbytes), array.reshape(-1).view(np.uint8)
    _move(room.ctypes.data, values.ctypes.data, values.nbytes)
    return room.view(array.dtype).reshape(array.shape)


class _Lent:
    """Memory of a read-only array, as one that can be written to."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array  # which keeps it
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def take_over(array: np.ndarray) -> np.ndarray:
    """An array that can be written to, in the memory of one from a message that nobody else refers to.

    CPython keeps nothing that depends on the contents of such a `bytes`, unless it is hashed.
    """
    taken: np.ndarray = np.asarray(_Lent(array.reshape(-1).view(np.uint8)))
    return taken.view(array.dtype).reshape(array.shape)


def _room(size: int) -> np.ndarray:
    """Aligned bytes. Numpy asks for huge pages, and for many of them the system may move memory about, 3 s for a GB."""
    if sys.platform == "linux" and size >= _MAPPED_BYTES:
        try:
            return np.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
        except OSError as error:
            raise MemoryError(f"{size} bytes: {error.strerror}") from error
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size]


def _join(pieces: Sequence[Any], size: int) -> bytes:
    """All of them in one, which is filled before anyone else knows of it, as C-API's docs of `bytes` allow."""
    if size < _MAPPED_BYTES:
        return b"".join(pieces)
    joined: bytes = _new_bytes(None, size)
    at = np.frombuffer(joined, np.uint8).ctypes.data
    for piece in pieces:
        values = np.frombuffer(piece, np.uint8)
        _move(at, values.ctypes.data, values.nbytes)
        at += values.nbytes
    return joined


def _move(to: int, origin: int, size: int) -> None:
    """Copy bytes from address to address, many of them by several threads at once."""
    if size < _MAPPED_BYTES or _COPIERS == 1:
        ctypes.memmove(to, origin, size)
        return
    step = -(-size // _COPIERS)
    with ThreadPoolExecutor(_COPIERS) as copiers:
        list(copiers.map(lambda at: ctypes.memmove(to + at, origin + at, min(step, size - at)), range(0, size, step)))


def parse_message(kind: Any, field: str, content: bytes) -> TensorMessage:
    """Read a message; values of large tensors stay in `content`.

    Args:
        kind: class of the message.
        field: name of its map of tensors.
        content: all of it.

    Raises:
        DecodeError: it is no such message.
    """
    message = TensorMessage(None, field)
    kept: list[Any] = []
    if len(content) >= LARGE_BYTES:
        try:
            kept = list(
                _take_out(memoryview(content), kind.DESCRIPTOR.fields_by_name[field].number, message.attachments)
            )
        except (StatusError, UnicodeDecodeError, DecodeError):
            message.attachments = {}  # protobuf's own code says what is wrong with it
    message.message = kind.FromString(b"".join(kept) if message.attachments else content)
    return message


def _take_out(content: memoryview, number: int, attachments: dict[str, DetachedTensor]) -> Iterator[Any]:
    """Move large tensors of the map field `number` to `attachments`; yield the rest of the message."""
    seen = set()
    for found, start, body, end in _fields(content):
        alias, tensor = _entry(content[body:end]) if found == number else (None, None)
        if alias is not None and alias in seen:
            raise invalid_argument("an alias stands there twice")
        seen.add(alias)
        if alias is None or tensor is None:
            yield content[start:end]
        else:
            attachments[alias] = tensor


def _entry(content: memoryview) -> tuple[str | None, DetachedTensor | None]:
    alias, tensor = "", None
    for number, _, body, end in _fields(content):
        if number == _KEY:
            alias = str(content[body:end], "utf-8")
        elif number == _VALUE and end - body >= LARGE_BYTES:
            tensor = _tensor(content[body:end])
    return alias, tensor


def _tensor(content: memoryview) -> DetachedTensor | None:
    """None where its values don't stand in one large piece."""
    kept, found = [], []
    for number, start, body, end in _fields(content):
        if number in _FIELDS and end - body >= LARGE_BYTES:
            found.append((_FIELDS[number], content[body:end]))
        elif number in _FIELDS:
            return None
        else:
            kept.append(content[start:end])
    if len(found) != 1:
        return None
    return DetachedTensor(schema.TensorProto.FromString(b"".join(kept)), *found[0])


def _fields(content: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Of each field its number, where its tag begins, where its body begins and where it ends.

    Raises:
        StatusError: INVALID_ARGUMENT where there is none.
    """
    at = 0
    while at < len(content):
        start = at
        tag, at = read_varint(content, at)
        body = at
        if tag & 7 == _VARINT:
            _, at = read_varint(content, at)
        elif tag & 7 == _DELIMITED:
            size, body = read_varint(content, at)
            at = body + size
        elif tag & 7 in (_FIXED64, _FIXED32):
            at += 8 if tag & 7 == _FIXED64 else 4
        else:
            raise invalid_argument("a field is of an unknown kind")
        if at > len(content):
            raise invalid_argument("a field ends beyond its message")
        yield tag >> 3, start, body, at


def _tag(number: int) -> bytes:
    return varint(number << 3 | _DELIMITED)
