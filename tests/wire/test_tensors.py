"""One table of (array, TensorProto) drives both directions of the codec."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from savedmodel_bakery.wire import dtypes, schema, tensors
from savedmodel_bakery.wire.status import StatusError


def proto(dtype: str, shape: list[int], **values: Any) -> Any:
    """A TensorProto with these fields."""
    message = schema.TensorProto(dtype=dtypes.BY_NAME[dtype].number, **values)
    message.tensor_shape.SetInParent()
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    return message


def objects(*items: bytes) -> np.ndarray:
    """An array of strings."""
    return np.array(items, object)


TABLE = [
    ("float", np.array([[1.5, -2.0]], np.float32), [1, 2], {"float_val": [1.5, -2.0]}),
    ("double", np.array(0.1), [], {"double_val": [0.1]}),
    ("half", np.array([1.5], np.float16), [1], {"half_val": [0x3E00]}),
    ("bfloat16", np.array([1.5], ml_dtypes.bfloat16), [1], {"half_val": [0x3FC0]}),
    ("float8_e5m2", np.array([1.5, -2], ml_dtypes.float8_e5m2), [2], {"float8_val": b"\x3e\xc0"}),
    ("float8_e4m3fn", np.array([1.5], ml_dtypes.float8_e4m3fn), [1], {"float8_val": b"\x3c"}),
    ("int8", np.array([-128, 127], np.int8), [2], {"int_val": [-128, 127]}),
    ("uint8", np.array([255], np.uint8), [1], {"int_val": [255]}),
    ("int16", np.array([-32768], np.int16), [1], {"int_val": [-32768]}),
    ("uint16", np.array([65535], np.uint16), [1], {"int_val": [65535]}),
    ("int32", np.array([2**31 - 1], np.int32), [1], {"int_val": [2**31 - 1]}),
    ("uint32", np.array([2**32 - 1], np.uint32), [1], {"uint32_val": [2**32 - 1]}),
    ("int64", np.array([-(2**63)], np.int64), [1], {"int64_val": [-(2**63)]}),
    ("uint64", np.array([2**64 - 1], np.uint64), [1], {"uint64_val": [2**64 - 1]}),
    ("int4", np.array([-8, 7], ml_dtypes.int4), [2], {"int_val": [-8, 7]}),
    ("uint4", np.array([15], ml_dtypes.uint4), [1], {"int_val": [15]}),
    ("bool", np.array([True, False]), [2], {"bool_val": [True, False]}),
    ("complex64", np.array([1 + 2j], np.complex64), [1], {"scomplex_val": [1, 2]}),
    ("complex128", np.array([1 - 2j]), [1], {"dcomplex_val": [1, -2]}),
    ("string", objects(b"a\0b", b""), [2], {"string_val": [b"a\0b", b""]}),
    ("int32", np.zeros((2, 0), np.int32), [2, 0], {}),
]
IDS = [f"{name} {list(shape)}" for name, _, shape, _ in TABLE]


@pytest.mark.parametrize(("name", "array", "shape", "values"), TABLE, ids=IDS)
def test_typed_fields_both_ways(name: str, array: np.ndarray, shape: list[int], values: dict[str, Any]) -> None:
    assert proto(name, shape, **values) == tensors.encode_tensor(array, packed=False)
    decoded = tensors.decode_array(proto(name, shape, **values))
    assert (array.dtype, array.shape) == (decoded.dtype, decoded.shape)
    assert array.tolist() == decoded.tolist()


@pytest.mark.parametrize(("name", "array", "shape"), [row[:3] for row in TABLE], ids=IDS)
def test_packed_content_both_ways(name: str, array: np.ndarray, shape: list[int]) -> None:
    encoded = tensors.encode_tensor(array)
    if name != "string":
        assert proto(name, shape, tensor_content=array.tobytes()) == encoded
    decoded = tensors.decode_array(encoded)
    assert (array.dtype, array.tolist()) == (decoded.dtype, decoded.tolist())


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        pytest.param(np.array([1, 2], ">i4"), np.array([1, 2], np.int32), id="big-endian"),
        pytest.param(np.arange(6.0).reshape(2, 3).T, np.array([[0.0, 3], [1, 4], [2, 5]]), id="transposed"),
        pytest.param(np.arange(6)[::2], np.array([0, 2, 4]), id="strided"),
        pytest.param(np.array(["ä", "b"]), objects("ä".encode(), b"b"), id="text"),
        pytest.param(np.array([b"ab", b"c"]), objects(b"ab", b"c"), id="fixed-width bytes"),
    ],
)
def test_memory_layout_does_not_matter(array: np.ndarray, expected: np.ndarray) -> None:
    decoded = tensors.decode_array(tensors.encode_tensor(array))
    assert (expected.dtype, expected.tolist()) == (decoded.dtype, decoded.tolist())


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(proto("float", [3], float_val=[1, 2]), [1.0, 2.0, 2.0], id="the last is repeated"),
        pytest.param(proto("float", [2]), [0.0, 0.0], id="zeros without values"),
        pytest.param(proto("string", [2]), [b"", b""], id="empty strings without values"),
        pytest.param(proto("string", [2], string_val=[b"x"]), [b"x", b"x"], id="the last string is repeated"),
        pytest.param(proto("int32", [1], int_val=[1, 2]), [1], id="surplus values are dropped"),
        pytest.param(proto("int8", [1], int_val=[300]), [44], id="out of range wraps"),
        pytest.param(proto("uint16", [1], int_val=[-1]), [65535], id="negative wraps"),
        pytest.param(proto("float", [1], tensor_content=b"\0\0\0\0", float_val=[7]), [0.0], id="content wins"),
        pytest.param(proto("float", [1], int_val=[7]), [0.0], id="a field of another dtype is ignored"),
        pytest.param(proto("complex64", [1], scomplex_val=[1, 2, 3]), [1 + 2j], id="a lone number is dropped"),
        pytest.param(proto("string", [2], tensor_content=b"\1\2abc"), [b"a", b"bc"], id="strings in content"),
        pytest.param(proto("float", [0], tensor_content=b"\0\0\0\0"), [], id="content without elements"),
        pytest.param(proto("string", [2, 0], tensor_content=b"abc"), [[], []], id="content without strings"),
    ],
)
def test_decoding_follows_tensorflow(message: Any, expected: list[Any]) -> None:
    """tensorflow/core/framework/tensor.cc, Tensor::FromProto."""
    assert expected == tensors.decode_array(message).tolist()


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(schema.TensorProto(), id="no dtype"),
        pytest.param(schema.TensorProto(dtype=101), id="reference dtype"),
        pytest.param(proto("float", [-1]), id="negative size"),
        pytest.param(proto("float", [1] * 255), id="too many dimensions"),
        pytest.param(proto("float", [2**50, 2**20]), id="beyond any memory"),
        pytest.param(proto("float", [2], tensor_content=b"\0\0\0\0"), id="content too short"),
        pytest.param(proto("float", [1], tensor_content=b"\0" * 8), id="content too long"),
        pytest.param(proto("bool", [1], tensor_content=b"\2"), id="bool that is neither 0 nor 1"),
        pytest.param(proto("string", [1], tensor_content=b"\5ab"), id="string length too large"),
        pytest.param(proto("string", [3], tensor_content=b"\0\0"), id="string lengths cut off"),
    ],
)
def test_invalid_tensors_are_rejected(message: Any) -> None:
    with pytest.raises(StatusError, match="INVALID_ARGUMENT"):
        tensors.decode_array(message)


@pytest.mark.parametrize("array", [np.array(["2020-01-01"], "M8[D]"), np.zeros(1, "i4,f4"), np.array([1, None])])
def test_arrays_that_cannot_be_sent_are_rejected(array: np.ndarray) -> None:
    with pytest.raises(StatusError, match="INVALID_ARGUMENT"):
        tensors.encode_tensor(array)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        pytest.param((2, 1), None, id="ordinary"),
        pytest.param((0, 2**62, 2**62), (0, 2**62, 2**62), id="too large a product of sizes"),
        pytest.param((1,) * 100, (1,) * 100, id="more dimensions than numpy has"),
    ],
)
def test_shapes_that_numpy_cannot_have_are_kept_beside_the_array(
    shape: tuple[int, ...], expected: tuple[int, ...] | None
) -> None:
    message = proto("qint8", list(shape), int_val=[7])
    tensor = tensors.decode_tensor(message)
    assert (dtypes.BY_NAME["qint8"], expected) == (tensor.dtype, tensor.shape)
    assert ([0 if 0 in shape else 1] if expected else list(shape)) == list(tensor.array.shape)
    if expected:
        with pytest.raises(StatusError, match="cannot create a tensor of shape"):
            tensors.decode_array(message)


def test_packed_strings_both_ways() -> None:
    strings = objects(b"a", b"x" * 300, b"")
    packed = tensors.encode_tensor(strings, packed_strings=True)
    assert b"\x01\xac\x02\x00a" + b"x" * 300 == packed.tensor_content
    assert strings.tolist() == tensors.decode_array(packed).tolist()


def test_four_bit_integers_keep_all_bits_of_their_byte() -> None:
    """As in TensorFlow, which writes them to `tensor_content`."""
    content = tensors.encode_tensor(tensors.decode_array(proto("int4", [3], int_val=[-1, 7, 127]))).tensor_content
    assert b"\xff\x07\x7f" == content


@pytest.mark.parametrize("dtype", dtypes.HANDLES.values(), ids=lambda dtype: str(dtype.name))
def test_handles_are_rejected(dtype: dtypes.DType) -> None:
    """Numpy would write the addresses of the objects."""
    with pytest.raises(StatusError, match=f"^INVALID_ARGUMENT: a tensor of {dtype.name} handles cannot be sent$"):
        tensors.encode_tensor(np.array([object()], object), dtype=dtype)
