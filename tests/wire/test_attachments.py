"""Messages with large tensors are the same as those that protobuf itself serializes and parses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from google.protobuf.message import DecodeError

from savedmodel_bakery.wire import dtypes, schema, tensors
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
    "text": np.array([b"a" * SIZE, b"b\0"], object),
}
TYPED_ATTACHMENTS = {"double", "float", "complex64", "complex128"}
PACKED_ATTACHMENTS = {*TYPED_ATTACHMENTS, "int32", "bool", "bfloat16"}


def plain(packed: bool) -> Any:
    """A response with all arrays, made by protobuf alone."""
    response = schema.PredictResponse()
    response.model_spec.name = "m"
    for alias, array in ARRAYS.items():
        tensors.encode_tensor(array, packed=packed, packed_strings=packed, into=response.outputs[alias])
    return response


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "typed"])
def test_the_serialized_message_is_the_one_that_protobuf_makes(packed: bool) -> None:
    message = TensorMessage(schema.PredictResponse(), "outputs")
    message.message.model_spec.name = "m"
    for alias, array in ARRAYS.items():
        message.add(alias, array, packed=packed, packed_strings=packed)
    assert (PACKED_ATTACHMENTS if packed else TYPED_ATTACHMENTS) == message.attachments.keys()
    assert plain(packed) == schema.PredictResponse.FromString(message.SerializeToString())


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "typed"])
def test_large_values_of_a_parsed_message_are_attachments_in_the_same_memory(packed: bool) -> None:
    content = plain(packed).SerializeToString()
    message = parse_message(schema.PredictResponse, "outputs", content)
    assert "m" == message.message.model_spec.name
    assert ({*PACKED_ATTACHMENTS, "text"} if packed else TYPED_ATTACHMENTS) == message.attachments.keys()
    for tensor in message.attachments.values():
        assert np.shares_memory(np.frombuffer(content, np.uint8), np.frombuffer(tensor.values, np.uint8))
    arrays = message.arrays()
    assert ARRAYS.keys() == arrays.keys()
    for alias, array in ARRAYS.items():
        assert dtypes.of_array(array).numpy == arrays[alias].dtype
        np.testing.assert_array_equal(array, arrays[alias], err_msg=alias)


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
def test_unusual_tensors_are_decoded_as_without_attachments(values: dict[str, Any], expected: float) -> None:
    request = schema.PredictRequest()
    proto = request.inputs["x"]
    tensors.fill_head(proto, dtypes.BY_NAME["float"], [SIZE])
    for field, value in values.items():
        setattr(proto, field, value) if field == "tensor_content" else getattr(proto, field).extend(value)
    [array] = parse_message(schema.PredictRequest, "inputs", request.SerializeToString()).arrays().values()
    np.testing.assert_array_equal(tensors.decode_array(proto), array)
    assert np.float32(expected) == array[-1]


@pytest.mark.parametrize("size", [SIZE, 1], ids=["both large", "the second small"])
def test_the_last_of_repeated_aliases_counts(size: int) -> None:
    first, second = schema.PredictRequest(), schema.PredictRequest()
    tensors.encode_tensor(np.zeros(SIZE, np.float32), into=first.inputs["x"])
    tensors.encode_tensor(np.ones(size, np.float32), into=second.inputs["x"])
    content = first.SerializeToString() + second.SerializeToString()
    np.testing.assert_array_equal(
        np.ones(size, np.float32), parse_message(schema.PredictRequest, "inputs", content).arrays()["x"]
    )


def test_an_entry_with_two_values_is_merged_by_the_rules_of_protobuf() -> None:
    """Protobuf merges repeated submessages: here the second value has the dtype and shape of the first."""
    large = tensors.encode_tensor(np.ones(SIZE, np.float32)).SerializeToString()
    small = schema.TensorProto(version_number=5).SerializeToString()
    entry = b"\n\1x" + b"".join(b"\x12" + tensors.varint(len(value)) + value for value in (large, small))
    request = schema.PredictRequest()
    number = request.DESCRIPTOR.fields_by_name["inputs"].number
    content = tensors.varint(number << 3 | 2) + tensors.varint(len(entry)) + entry
    expected = tensors.decode_array(schema.PredictRequest.FromString(content).inputs["x"])
    parsed = parse_message(schema.PredictRequest, "inputs", content)
    np.testing.assert_array_equal(expected, parsed.arrays()["x"])


@pytest.mark.parametrize("cut", [1, SIZE])
def test_a_truncated_message_is_a_decode_error(cut: int) -> None:
    content = plain(packed=True).SerializeToString()
    with pytest.raises(DecodeError):
        parse_message(schema.PredictResponse, "outputs", content[:-cut])


def test_a_message_beyond_the_limit_of_protobuf_is_rejected() -> None:
    message = TensorMessage(schema.PredictRequest(), "inputs")
    message.add("x", np.zeros(1 << 28), packed=True)
    with pytest.raises(StatusError) as caught:
        message.SerializeToString()
    expected = "PredictRequest has 2147483681 bytes; a protobuf message has at most 2147483647"
    assert f"INVALID_ARGUMENT: {expected}" == str(caught.value)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("length", range(1, 9))
def test_arrays_are_aligned_wherever_their_values_are_in_the_message(length: int, dtype: Any) -> None:
    array = np.resize(np.array([0, 1, 1], dtype), SIZE)
    request = schema.PredictRequest()
    tensors.encode_tensor(array, into=request.inputs["x" * length])
    [decoded] = parse_message(schema.PredictRequest, "inputs", request.SerializeToString()).arrays().values()
    assert decoded.flags.aligned
    np.testing.assert_array_equal(array, decoded)
