"""Messages with large tensors are those that protobuf itself writes and reads."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from google.protobuf.message import DecodeError

from savedmodel_bakery.wire import attachments, dtypes, schema, tensors
from savedmodel_bakery.wire.attachments import TensorMessage, parse_message
from savedmodel_bakery.wire.status import StatusError

SIZE = 1 << 20
ARRAYS = {
    "double": np.arange(SIZE // 4, dtype=np.float64).reshape(2, -1),
    "float": np.arange(SIZE, dtype=np.float32)[::2],
    "complex64": np.full(SIZE // 8, 1 + 2j, np.complex64),
    "complex128": np.full((SIZE // 8, 1), 1 + 2j),
    "int32": np.arange(SIZE // 2, dtype=">i4").reshape(-1, 4).T,
    "bool": np.arange(SIZE) % 3 == 0,
    "bfloat16": np.arange(SIZE).astype(ml_dtypes.bfloat16),
    "small": np.arange(5),
    "text": np.array([b"a" * SIZE, b"b"], object),
}


def plain(packed: bool) -> Any:
    """The message as protobuf has it."""
    response = schema.PredictResponse()
    response.model_spec.name = "m"
    for alias, array in ARRAYS.items():
        tensors.encode_tensor(array, packed=packed, into=response.outputs[alias])
    return response


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "typed"])
def test_what_is_written_is_the_same_message(packed: bool) -> None:
    message = TensorMessage(schema.PredictResponse(), "outputs")
    message.message.model_spec.name = "m"
    for alias, array in ARRAYS.items():
        message.add(alias, array, packed=packed)
    typed = {"double", "float", "complex64", "complex128"}
    assert (typed | {"int32", "bool", "bfloat16"} if packed else typed) == message.attachments.keys()
    assert plain(packed) == schema.PredictResponse.FromString(message.SerializeToString())


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "typed"])
def test_what_protobuf_writes_is_read_where_it_lies(packed: bool) -> None:
    content = plain(packed).SerializeToString()
    message = parse_message(schema.PredictResponse, "outputs", content)
    assert "m" == message.message.model_spec.name
    assert message.attachments.keys() >= {"double", "float", "complex64", "complex128"}
    assert "small" in message.message.outputs
    found = message.tensors()
    assert ARRAYS.keys() == found.keys()
    for alias, array in ARRAYS.items():
        assert dtypes.of_array(array).numpy == found[alias].dtype
        np.testing.assert_array_equal(array, found[alias], err_msg=alias)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"tensor_content": b"\1" * 4 * SIZE, "float_val": [7.0]}, 2.3694278e-38),
        ({"float_val": [7.0] * SIZE, "double_val": [8.0]}, 7.0),
        ({"double_val": [8.0] * SIZE}, 0.0),
        ({"float_val": [7.0] * (SIZE - 5)}, 7.0),
        ({"float_val": [7.0] * (SIZE + 5)}, 7.0),
    ],
    ids=["content wins", "its own field", "another field only", "too few", "too many"],
)
def test_other_ways_to_write_a_tensor_are_read_as_ever(values: dict[str, Any], expected: float) -> None:
    request = schema.PredictRequest()
    proto = request.inputs["x"]
    tensors.fill_head(proto, dtypes.BY_NAME["float"], [SIZE])
    for field, value in values.items():
        setattr(proto, field, value) if field == "tensor_content" else getattr(proto, field).extend(value)
    [found] = parse_message(schema.PredictRequest, "inputs", request.SerializeToString()).tensors().values()
    np.testing.assert_array_equal(tensors.decode_array(proto), found)
    assert np.float32(expected) == found[-1]


def test_an_alias_that_stands_there_twice_is_the_last_one() -> None:
    both = [schema.PredictRequest() for _ in range(2)]
    for value, request in enumerate(both):
        tensors.encode_tensor(np.full(SIZE, value, np.float32), into=request.inputs["x"])
    content = b"".join(request.SerializeToString() for request in both)
    assert 1.0 == parse_message(schema.PredictRequest, "inputs", content).tensors()["x"][0]


@pytest.mark.parametrize("cut", [1, SIZE])
def test_a_message_that_is_cut_off_is_none(cut: int) -> None:
    content = plain(True).SerializeToString()
    with pytest.raises(DecodeError):
        parse_message(schema.PredictResponse, "outputs", content[:-cut])


def test_more_than_protobuf_holds_is_refused_before_it_is_copied() -> None:
    message = TensorMessage(schema.PredictRequest(), "inputs")
    message.add("x", np.zeros(1 << 28), packed=True)
    with pytest.raises(StatusError) as caught:
        message.SerializeToString()
    expected = "PredictRequest takes 2147483648 bytes; a message of protobuf holds 2147483647 at most"
    assert f"INVALID_ARGUMENT: {expected}" == str(caught.value)


@pytest.mark.parametrize("alias", ["x", "xy", "x" * 50, "x" * 127])
def test_values_are_aligned_in_the_memory_of_who_reads_them(alias: str) -> None:
    message = TensorMessage(schema.PredictRequest(), "inputs")
    more_than_malloc_keeps = (9, SIZE)
    sent = {
        f"{alias}{place}": np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
        for place, shape in enumerate([(SIZE,), more_than_malloc_keeps, (SIZE + 1,)])
    }
    for name, array in sent.items():
        message.add(name, array, packed=True)
    content = bytes(bytearray(message.SerializeToString()))  # as gRPC makes them
    found = parse_message(schema.PredictRequest, "inputs", content).tensors()
    begin = np.frombuffer(content, np.uint8).ctypes.data
    if sys.platform == "linux":  # elsewhere memory lies otherwise, and the reader copies
        assert 48 == begin % attachments.ALIGNMENT
    assert [16] * 3 == [(array.ctypes.data - begin) % attachments.ALIGNMENT for array in found.values()]
    read = schema.PredictRequest.FromString(content)
    for name, array in sent.items():
        np.testing.assert_array_equal(array, found[name])
        np.testing.assert_array_equal(array, tensors.decode_array(read.inputs[name]))


def test_a_copy_of_many_bytes_has_all_of_them() -> None:
    """More than malloc keeps, and no multiple of how many threads copy it."""
    array = np.random.default_rng(0).integers(0, 256, (32 << 20) + 5, np.uint8)
    np.testing.assert_array_equal(array, attachments.copy(array))


@pytest.mark.parametrize("dtype", ["<f8", "<i4", "?", "<c16"])
def test_a_copy_is_aligned_can_be_written_to_and_is_the_same(dtype: str) -> None:
    content = b"head" + np.arange(SIZE).astype(dtype).tobytes()
    array = np.frombuffer(content, dtype, offset=4).reshape(4, -1)
    copied = attachments.copy(array)
    np.testing.assert_array_equal(array, copied)
    assert copied.flags.writeable
    assert 0 == copied.ctypes.data % attachments.ALIGNMENT
    assert (0, 3) == attachments.copy(array[:0, :3]).shape
