"""Arrays to TensorProto and back, by TensorFlow's own reading of that message (tensorflow/core/framework/tensor.cc)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from savedmodel_bakery.wire import dtypes, schema
from savedmodel_bakery.wire.status import StatusError, invalid_argument

MAX_DIMENSIONS = 254
_SURE_DIMENSIONS = 32  # what every numpy has
_FOUR_BITS = {"int4": np.int8, "uint4": np.uint8}

# Fields whose values stand in a serialized message as they stand in memory, each with the tag before them: merging them
# as bytes is fifty times faster than value by value (protobuf.dev/programming-guides/encoding, packed fields).
_LENGTH_DELIMITED = 2
_TYPED_AS_IN_MEMORY = ("float_val", "double_val", "scomplex_val", "dcomplex_val") if sys.byteorder == "little" else ()
RAW_TAGS = {
    name: bytes([schema.TensorProto.DESCRIPTOR.fields_by_name[name].number << 3 | _LENGTH_DELIMITED])
    for name in ("tensor_content", *_TYPED_AS_IN_MEMORY)
}


class Tensor(NamedTuple):
    """An array with its element type, which numpy cannot express for quantised numbers.

    Attributes:
        array: the elements.
        dtype: their type.
        shape: the tensor's shape if numpy cannot have it (`is_unrepresentable`); `array` then has one dimension.
    """

    array: np.ndarray
    dtype: dtypes.DType
    shape: tuple[int, ...] | None = None


def encode_tensor(
    array: np.ndarray,
    *,
    packed: bool = True,
    packed_strings: bool = False,
    dtype: dtypes.DType | None = None,
    shape: Sequence[int] | None = None,
    into: Any = None,
) -> Any:
    """Turn an array into a TensorProto.

    Args:
        array: any shape, byte order and memory layout; strings as `S`, `U` (sent as UTF-8) or object arrays of
            bytes and str.
        packed: write numbers as raw bytes into `tensor_content`, which is smallest and fastest; otherwise into the
            typed field of the dtype, as tensorflow_model_server answers.
        packed_strings: write strings into `tensor_content` too, rather than into `string_val`.
        dtype: the element type to declare where several share a numpy dtype (qint8 and int8).
        shape: what to declare where numpy can't have that shape; None is the array's.
        into: an empty message to fill, which spares a copy; None makes one.

    Raises:
        StatusError: INVALID_ARGUMENT for element types that can't be sent.
    """
    kind = dtype or dtypes.of_array(array)
    proto = schema.TensorProto() if into is None else into
    fill_head(proto, kind, array.shape if shape is None else shape)
    if kind is dtypes.STRING:
        strings = [_as_bytes(item) for item in array.ravel().tolist()]
        if packed_strings:
            proto.tensor_content = _content_of_strings(strings)
        else:
            proto.string_val.extend(strings)
        return proto
    values = np.asarray(array, dtype=kind.numpy, order="C")
    if packed:
        proto.tensor_content = values.tobytes()
    elif kind.field == "float8_val":
        proto.float8_val = values.tobytes()
    elif kind.field in RAW_TAGS:
        proto.MergeFromString(RAW_TAGS[kind.field] + varint(values.nbytes) + values.tobytes())
    else:
        getattr(proto, kind.field).extend(_typed_values(values, kind))
    return proto


def fill_head(proto: Any, kind: dtypes.DType, shape: Sequence[int]) -> None:
    """Write all but the values into an empty TensorProto."""
    proto.dtype = kind.number
    proto.tensor_shape.SetInParent()  # a scalar's shape is there too, and empty
    for size in shape:
        proto.tensor_shape.dim.add(size=size)


def raw_field(kind: dtypes.DType, *, packed: bool) -> str | None:
    """The field in which values stand as they stand in memory; None where there is none."""
    field = "tensor_content" if packed else kind.field
    return field if field in RAW_TAGS and kind is not dtypes.STRING else None


def decode_array(proto: Any, detached: tuple[str, Any] | None = None) -> np.ndarray:
    """Turn a TensorProto into an array; strings become object arrays of bytes.

    `tensor_content` wins over typed values and must be exactly as long as the shape needs; fewer typed values are
    filled up with the last one, none at all are zeros, more are dropped, and integers out of range wrap. Of a shape
    without elements no values are looked at.

    Args:
        proto: the message.
        detached: a field of `RAW_TAGS` and its bytes, where they stand outside of the message.

    Returns:
        An array; read-only where it shares its memory with `proto`.

    Raises:
        StatusError: INVALID_ARGUMENT where the message describes no tensor.
    """
    shape = read_shape(proto)
    values = _decode_values(proto, shape, detached)
    try:
        return values.reshape(shape)
    except ValueError as error:
        raise _unmakeable(shape, error) from error


def decode_tensor(proto: Any, detached: tuple[str, Any] | None = None) -> Tensor:
    """Turn a TensorProto into a Tensor, of any shape that TensorFlow has; otherwise as `decode_array`."""
    dtype, shape = dtypes.of_number(proto.dtype), read_shape(proto)
    values = _decode_values(proto, shape, detached)
    if is_unrepresentable(shape, dtype.numpy):
        return Tensor(values, dtype, shape)
    return Tensor(values.reshape(shape), dtype)


def _decode_values(proto: Any, shape: Sequence[int], detached: tuple[str, Any] | None = None) -> np.ndarray:
    """The values of a TensorProto of this shape, in one dimension; the rest as for `decode_array`."""
    kind = dtypes.of_number(proto.dtype)
    try:
        return _values(proto, kind, math.prod(shape), detached)
    except (MemoryError, OverflowError, ValueError) as error:
        raise _unmakeable(shape, error) from error


def _unmakeable(shape: Sequence[int], error: Exception) -> StatusError:
    return invalid_argument(f"a tensor of shape {list(shape)} cannot be made: {error}")


def _values(proto: Any, kind: dtypes.DType, count: int, detached: tuple[str, Any] | None) -> np.ndarray:
    if not count:
        return np.empty(0, kind.numpy)
    if kind is dtypes.STRING:
        return _strings(proto, count)
    if proto.tensor_content or (detached and detached[0] == "tensor_content"):
        return _from_content(detached[1] if detached else proto.tensor_content, kind, count)
    if detached and detached[0] == kind.field:
        whole = len(detached[1]) // kind.numpy.itemsize
        return _fill(np.frombuffer(detached[1], kind.numpy, whole), kind.numpy, count)
    return _fill(_from_typed_field(proto, kind), kind.numpy, count)


def read_shape(proto: Any) -> tuple[int, ...]:
    """The shape of a TensorProto.

    Raises:
        StatusError: INVALID_ARGUMENT for more than MAX_DIMENSIONS, or a size below 0.
    """
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if len(shape) > MAX_DIMENSIONS or any(size < 0 for size in shape):
        raise invalid_argument(f"a tensor cannot have the shape {list(shape)}")
    return shape


def is_unrepresentable(shape: Sequence[int], dtype: np.dtype) -> bool:
    """Whether TensorFlow can have a shape and numpy can't.

    It has more dimensions than numpy allows, or no elements and other sizes that multiply to more than numpy counts.
    """
    if len(shape) <= _SURE_DIMENSIONS and 0 not in shape:
        return False
    try:
        np.empty(shape if 0 in shape else [1] * len(shape), dtype)
    except ValueError:
        return True
    return False


def _as_bytes(item: object) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return item.encode()
    raise invalid_argument(f"an element of a string array is {type(item).__name__}; supported are bytes and str")


def _typed_values(values: np.ndarray, kind: dtypes.DType) -> list[Any]:
    flat = values.ravel()
    if kind.storage is not None:
        flat = flat.view(kind.storage)
    elif values.dtype.kind == "c":  # on machines of the other byte order
        flat = flat.view(values.real.dtype)
    elif kind.name in _FOUR_BITS:
        flat = flat.astype(np.int32)
    return flat.tolist()  # type: ignore[no-any-return]


def _from_content(content: Any, kind: dtypes.DType, count: int) -> np.ndarray:
    if len(content) != count * kind.numpy.itemsize:
        raise invalid_argument(f"{len(content)} bytes of tensor_content cannot hold {count} values of {kind.name}")
    if kind.numpy == np.bool_ and np.frombuffer(content, np.uint8).max(initial=0) > 1:
        raise invalid_argument("a bool in tensor_content is neither 0 nor 1")
    return np.frombuffer(content, kind.numpy)


def _from_typed_field(proto: Any, kind: dtypes.DType) -> np.ndarray:
    field = getattr(proto, kind.field)
    if kind.field == "float8_val":
        return np.frombuffer(field, kind.numpy)
    if kind.storage is not None:
        return np.array(field, np.int64).astype(kind.storage).view(kind.numpy)
    if kind.numpy.kind == "c":
        pairs = np.array(field, np.float32 if kind.name == "complex64" else np.float64)
        return pairs[: len(pairs) // 2 * 2].view(kind.numpy)
    if kind.name in _FOUR_BITS:  # in a byte each, all of which TensorFlow keeps
        return np.array(field, np.int32).astype(_FOUR_BITS[kind.name]).view(kind.numpy)
    if kind.field == "int_val":
        return np.array(field, np.int32).astype(kind.numpy)
    return np.array(field, kind.numpy)


def _fill(values: np.ndarray, dtype: np.dtype, count: int) -> np.ndarray:
    if len(values) >= count:
        return values[:count]
    if not len(values):
        return np.zeros(count, dtype)
    filled = np.full(count, values[-1], dtype)
    filled[: len(values)] = values
    return filled


def _strings(proto: Any, count: int) -> np.ndarray:
    values = (
        _strings_of_content(proto.tensor_content, count) if proto.tensor_content else list(proto.string_val)[:count]
    )
    flat = np.empty(count, object)
    flat[:] = values[-1] if values else b""
    flat[: len(values)] = values
    return flat


def _content_of_strings(strings: list[bytes]) -> bytes:
    """See `_strings_of_content`."""
    return b"".join(varint(len(string)) for string in strings) + b"".join(strings)


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _strings_of_content(content: bytes, count: int) -> list[bytes]:
    """All lengths as varints, then all bytes (tensorflow/core/platform/tensor_coding.cc, DecodeStringList)."""
    lengths, at = [], 0
    for _ in range(count):
        length, at = read_varint(content, at)
        lengths.append(length)
    if at + sum(lengths) != len(content):
        raise invalid_argument("tensor_content of strings is not as long as its lengths say")
    values = []
    for length in lengths:
        values.append(content[at : at + length])
        at += length
    return values


def read_varint(content: Any, at: int) -> tuple[int, int]:
    """A number as protobuf writes it, and where it ends.

    Raises:
        StatusError: INVALID_ARGUMENT where it is none.
    """
    value = 0
    for place, byte in enumerate(content[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise invalid_argument("tensor_content of strings ends inside their lengths")
