"""Converts arrays to TensorProto and back, as TensorFlow itself does (tensorflow/core/framework/tensor.cc)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from savedmodel_bakery.wire import dtypes, schema
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.encoding import DELIMITED, pack_strings, unpack_strings, varint
from savedmodel_bakery.wire.status import invalid_argument

_NUMPY_DIMENSIONS = 32  # every version of numpy supports this many
_FOUR_BITS = {"int4": np.int8, "uint4": np.uint8}

# Fields whose serialized values have the layout of an array in memory (TensorFlow needs a little-endian machine), each
# with its tag. Merging the values as bytes is fifty times faster than adding them one by one
# (protobuf.dev/programming-guides/encoding, packed fields).
RAW_TAGS = {
    name: bytes([schema.TensorProto.DESCRIPTOR.fields_by_name[name].number << 3 | DELIMITED])
    for name in ("tensor_content", "float_val", "double_val", "scomplex_val", "dcomplex_val")
}


class Tensor(NamedTuple):
    """An array with its element type, which numpy cannot express for quantised numbers."""

    array: np.ndarray
    dtype: DType
    shape: tuple[int, ...] | None = None  # only if numpy cannot have it; `array` then has one dimension


def encode_tensor(
    array: np.ndarray,
    *,
    packed: bool = True,
    packed_strings: bool = False,
    dtype: DType | None = None,
    shape: Sequence[int] | None = None,
    into: Any = None,
) -> Any:
    """Encode an array as a TensorProto.

    Strings are `S`, `U` (sent as UTF-8) or object arrays of bytes and str. `packed` writes numbers as raw bytes into
    `tensor_content`, which is smallest and fastest, rather than into the typed field of the dtype, as
    tensorflow_model_server does in its responses; `packed_strings` writes strings there too. `dtype` is needed if
    several element types share the array's numpy dtype (qint8 and int8), `shape` if numpy cannot have the tensor's.
    `into` is an empty TensorProto to fill, which saves a copy.
    """
    dtype = dtype or dtypes.of_array(array)
    proto = schema.TensorProto() if into is None else into
    fill_head(proto, dtype, array.shape if shape is None else shape)
    if dtype is dtypes.STRING:
        strings = [dtypes.as_bytes(item) for item in array.ravel().tolist()]
        if packed_strings:
            proto.tensor_content = pack_strings(strings)
        else:
            proto.string_val.extend(strings)
        return proto
    if dtype.number in dtypes.HANDLES:  # numpy would write the pointers
        raise invalid_argument(f"a tensor of {dtype.name} handles cannot be sent")
    values = np.asarray(array, dtype=dtype.numpy, order="C")
    if packed:
        proto.tensor_content = values.tobytes()
    elif dtype.field == "float8_val":
        proto.float8_val = values.tobytes()
    elif dtype.field in RAW_TAGS:
        proto.MergeFromString(RAW_TAGS[dtype.field] + varint(values.nbytes) + values.tobytes())
    else:
        getattr(proto, dtype.field).extend(_typed_values(values, dtype))
    return proto


def fill_head(proto: Any, dtype: DType, shape: Sequence[int]) -> None:
    """Set the element type and the shape of an empty TensorProto."""
    proto.MergeFromString(_head(dtype.number, tuple(shape)))


@lru_cache(256)
def _head(number: int, shape: tuple[int, ...]) -> bytes:
    """Serialize an element type and a shape; kept, because making the messages takes three times as long."""
    tensor_shape = {"dim": [{"size": size} for size in shape]}  # a scalar has an empty shape, which is still present
    head: bytes = schema.TensorProto(dtype=number, tensor_shape=tensor_shape).SerializeToString()
    return head


def raw_field(dtype: DType, *, packed: bool) -> str | None:
    """Return the field that takes the values as raw bytes (see `RAW_TAGS`), or None if there is none."""
    field = "tensor_content" if packed else dtype.field
    return field if field in RAW_TAGS and dtype is not dtypes.STRING else None


def decode_array(proto: Any, detached: tuple[str, Any] | None = None) -> np.ndarray:
    """Decode a TensorProto to an aligned array, read-only if it shares memory with the message.

    Strings become objects of bytes. `tensor_content` takes precedence over typed values, and its length must match the
    shape exactly. If there are fewer typed values than elements, the last value is repeated; without any, the elements
    are zero. Surplus values are dropped. Integers out of range wrap. The values of a tensor without elements are
    ignored.

    `detached` is a field of `RAW_TAGS` and its bytes, if they are kept outside the message.
    """
    array, _, shape = decode_tensor(proto, detached)
    if shape is not None:
        raise invalid_argument(f"cannot create a tensor of shape {list(shape)}: numpy cannot have this shape")
    return array


def decode_tensor(
    proto: Any,
    detached: tuple[str, Any] | None = None,
    *,
    before_filling: Callable[[DType, tuple[int, ...]], None] = lambda _dtype, _shape: None,
) -> Tensor:
    """Decode a TensorProto to a Tensor of any shape that TensorFlow can have; otherwise as `decode_array`.

    `before_filling` is called with the element type and the shape that the message declares, before memory is used for
    it; it may raise StatusError.
    """
    dtype = dtypes.of_number(proto.dtype)
    shape = read_shape(proto)
    before_filling(dtype, shape)
    values = _decode_values(proto, dtype, shape, detached)
    if is_unrepresentable(shape, dtype.numpy):
        return Tensor(values, dtype, shape)
    return Tensor(values.reshape(shape), dtype)


def read_shape(proto: Any) -> tuple[int, ...]:
    """Return the shape of a TensorProto."""
    shape = tuple([dim.size for dim in proto.tensor_shape.dim])  # faster than from a generator
    if len(shape) > dtypes.MAX_DIMENSIONS or (shape and min(shape) < 0):
        raise invalid_argument(
            f"invalid tensor shape {list(shape)}: must have at most {dtypes.MAX_DIMENSIONS} dimensions, none negative"
        )
    return shape


def is_unrepresentable(shape: Sequence[int], dtype: np.dtype) -> bool:
    """Return whether TensorFlow can have a shape but numpy cannot.

    Such a shape has more dimensions than numpy allows, or has no elements and other sizes whose product is too large.
    """
    if len(shape) <= _NUMPY_DIMENSIONS and 0 not in shape:
        return False
    try:
        np.empty(shape if 0 in shape else [1] * len(shape), dtype)
    except ValueError:
        return True
    return False


def _decode_values(
    proto: Any, dtype: dtypes.DType, shape: Sequence[int], detached: tuple[str, Any] | None
) -> np.ndarray:
    """Decode the values of a TensorProto to an array of one dimension."""
    count = math.prod(shape)
    field, raw = detached or ("", b"")
    content = raw if field == "tensor_content" else proto.tensor_content
    try:
        if not count:
            return np.empty(0, dtype.numpy)
        if dtype is dtypes.STRING:
            strings = unpack_strings(content, count) if len(content) else list(proto.string_val)
            return _fill(dtypes.object_array(strings), count, default=b"")
        if len(content):
            return _from_content(content, dtype, count)
        if field == dtype.field:
            return _fill(values_in(raw, dtype), count)
        return _fill(_from_typed_field(proto, dtype), count)
    except (MemoryError, OverflowError, ValueError) as error:
        raise invalid_argument(f"cannot create a tensor of shape {list(shape)}: {error}") from error


def values_in(content: Any, dtype: DType) -> np.ndarray:
    """Return the values in `content`, in place if they are aligned there; incomplete ones are dropped."""
    values = np.frombuffer(content, dtype.numpy, len(content) // dtype.numpy.itemsize)
    return values if values.flags.aligned else values.copy()


def _from_content(content: Any, dtype: DType, count: int) -> np.ndarray:
    if len(content) != count * dtype.numpy.itemsize:
        raise invalid_argument(
            f"tensor_content has {len(content)} bytes; {count} values of {dtype.name} need "
            f"{count * dtype.numpy.itemsize}"
        )
    if dtype.numpy == np.bool_ and np.frombuffer(content, np.uint8).max(initial=0) > 1:
        raise invalid_argument("a bool in tensor_content is neither 0 nor 1")
    return values_in(content, dtype)


def _from_typed_field(proto: Any, dtype: DType) -> np.ndarray:
    field = getattr(proto, dtype.field)
    if dtype.field == "float8_val":
        return np.frombuffer(field, dtype.numpy)
    if dtype.storage is not None:
        return np.array(field, np.int64).astype(dtype.storage).view(dtype.numpy)
    if dtype.numpy.kind == "c":
        pairs = np.array(field, np.float32 if dtype.name == "complex64" else np.float64)
        return pairs[: len(pairs) // 2 * 2].view(dtype.numpy)
    if dtype.name in _FOUR_BITS:  # one per byte; TensorFlow keeps all eight bits
        return np.array(field, np.int32).astype(_FOUR_BITS[dtype.name]).view(dtype.numpy)
    if dtype.field == "int_val":
        return np.array(field, np.int32).astype(dtype.numpy)
    return np.array(field, dtype.numpy)


def _typed_values(values: np.ndarray, dtype: DType) -> list[Any]:
    flat = values.ravel()
    if dtype.storage is not None:
        flat = flat.view(dtype.storage)
    elif dtype.name in _FOUR_BITS:
        flat = flat.astype(np.int32)
    return flat.tolist()  # type: ignore[no-any-return]


def _fill(values: np.ndarray, count: int, default: object = 0) -> np.ndarray:
    """Return exactly `count` values: drop surplus ones, or repeat the last one."""
    if len(values) >= count:
        return values[:count]
    filled = np.empty(count, values.dtype)
    filled[:] = values[-1] if len(values) else default
    filled[: len(values)] = values
    return filled


def as_array(value: Any) -> np.ndarray:
    """Return a value of TensorFlow as an array. It returns numeric scalars as scalars of numpy, strings as bytes."""
    return np.asarray(value, object) if isinstance(value, bytes) else np.asarray(value)
