"""ModelInferRequest and ModelInferResponse, in both roles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from v2_values import VALUES

from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor
from savedmodel_bakery.wire.v2 import grpc, schema
from savedmodel_bakery.wire.v2.infer import InferRequest, InferResponse

CONTENTS = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def _request(**fields: Any) -> bytes:
    content: bytes = schema.ModelInferRequest(**fields).SerializeToString()
    return content


def _read(content: bytes) -> InferRequest:
    return grpc.read_request(grpc.parse_request(content))


def _input(**fields: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [2], **fields}


@pytest.mark.parametrize("datatype", VALUES)
def test_a_request_of_our_client_is_read_as_it_was_sent(datatype: str) -> None:
    encoded = grpc.encode_request("m", {"x": VALUES[datatype]}, version=3, signature_name="top_k", outputs=["a"])
    encoded.message.id = "7"
    parsed = grpc.parse_request(encoded.SerializeToString())
    request = grpc.read_request(parsed)
    assert ("m", "3", "7", "top_k", ["a"]) == (
        parsed.message.model_name,
        parsed.message.model_version,
        request.request_id,
        request.signature_name,
        [output.name for output in request.outputs],
    )
    [x] = (sent.decode().array for sent in request.inputs)
    assert VALUES[datatype].dtype == x.dtype
    np.testing.assert_array_equal(VALUES[datatype], x)


@pytest.mark.parametrize("datatype", CONTENTS)
def test_typed_contents_are_read(datatype: str) -> None:
    array = VALUES[datatype]
    contents = schema.InferTensorContents(**{CONTENTS[datatype]: array.ravel().tolist()})
    entry = {"name": "x", "datatype": datatype, "shape": array.shape, "contents": contents}
    [x] = (sent.decode().array for sent in _read(_request(inputs=[entry])).inputs)
    assert array.dtype == x.dtype
    np.testing.assert_array_equal(array, x)
    response = schema.ModelInferResponse(outputs=[entry]).SerializeToString()
    np.testing.assert_array_equal(array, grpc.decode_response(response).outputs["x"].array)


@pytest.mark.parametrize("datatype", VALUES)
def test_a_response_is_read_as_it_was_sent(datatype: str) -> None:
    array = VALUES[datatype]
    sent = InferResponse("m", "3", {"y": Tensor(array, dtypes.of_array(array))}, "7")
    received = grpc.decode_response(grpc.encode_response(sent).SerializeToString())
    assert ("m", "3", "7") == (received.model_name, received.model_version, received.request_id)
    assert array.dtype == received.outputs["y"].array.dtype
    np.testing.assert_array_equal(array, received.outputs["y"].array)


def test_empty_contents_beside_raw_ones_are_ignored() -> None:
    """As in MLServer's responses."""
    entry = _input(contents=schema.InferTensorContents())
    response = schema.ModelInferResponse(outputs=[entry], raw_output_contents=[np.float32([1, 2]).tobytes()])
    received = grpc.decode_response(response.SerializeToString())
    assert [1, 2] == received.outputs["x"].array.tolist()


def test_large_values_are_used_in_place() -> None:
    """Also next to small ones, and whether they are aligned or not."""
    large = np.arange(2**19, dtype=np.float32)
    inputs = {"a": large, "b": np.array([b"xyz"], object), "c": large + 1}
    content = grpc.encode_request("m", inputs).SerializeToString()
    official = schema.ModelInferRequest.FromString(content)
    assert [large.tobytes(), b"\3\0\0\0xyz", (large + 1).tobytes()] == list(official.raw_input_contents)
    a, b, c = (sent.decode().array for sent in _read(content).inputs)
    np.testing.assert_array_equal(large, a)
    assert [b"xyz"] == b.tolist()
    np.testing.assert_array_equal(large + 1, c)


def test_the_shape_that_numpy_cannot_have_is_kept() -> None:
    entry = _input(shape=[0, 2**62, 2**62])
    [sent] = _read(_request(inputs=[entry], raw_input_contents=[b""])).inputs
    assert (0, 2**62, 2**62) == sent.decode().shape


INVALID = {
    "both": (
        [_input(contents={"fp32_contents": [1, 2]})],
        [bytes(8)],
        'input "x" has contents, and the message has raw contents too',
    ),
    "few raw": ([_input(), _input()], [bytes(8)], "the request has 2 inputs, but 1 raw_input_contents"),
    "few values": (
        [_input(contents={"fp32_contents": [1]})],
        [],
        r'input "x" has 1 values in fp32_contents; shape \[2\] needs 2',
    ),
    "another field": ([_input(contents={"fp64_contents": [1, 2]})], [], "0 values in fp32_contents"),
    "nothing": ([_input()], [], "0 values in fp32_contents"),
    "huge shape": ([_input(shape=[2**40, 2**20])], [], "0 values in fp32_contents"),
    "enormous shape": ([_input(shape=[2**63 - 1] * 254)], [], 'input "x" has a shape of too many elements'),
    "enormous raw shape": ([_input(shape=[2**63 - 1] * 254)], [bytes(8)], 'input "x" has a shape of too many elements'),
    "range": (
        [_input(datatype="UINT8", contents={"uint_contents": [0, 256]})],
        [],
        "cannot be read as UINT8: an integer is not between 0 and 255",
    ),
    "fp16": ([_input(datatype="FP16", contents={"fp32_contents": [0, 0]})], [], "which travels in raw contents only"),
    "negative": ([_input(shape=[-1])], [bytes(8)], "needs a shape: a list of at most 254 integers between 0 and"),
    "dimensions": ([_input(shape=[1] * 255)], [bytes(4)], "a list of at most 254 integers"),
    "few bytes": ([_input()], [bytes(7)], "7 bytes of data; 2 values of FP32 need 8"),
}


@pytest.mark.parametrize(("inputs", "raw", "message"), INVALID.values(), ids=INVALID)
def test_a_request_that_is_not_valid_is_an_error(inputs: list[Any], raw: list[bytes], message: str) -> None:
    with pytest.raises(StatusError, match=message) as raised:
        [sent.decode() for sent in _read(_request(inputs=inputs, raw_input_contents=raw)).inputs]
    assert Code.INVALID_ARGUMENT is raised.value.code


@pytest.mark.parametrize("count", [10_001, 1_000_000])
def test_a_message_with_many_inputs_is_rejected_before_they_are_read(count: int) -> None:
    """An empty input has two bytes, but its message needs much more memory."""
    with pytest.raises(StatusError, match="at most 10000 are allowed"):
        _read(b"\x2a\x00" * count)


@pytest.mark.parametrize("owner", ["request", "inputs", "outputs"])
def test_a_message_with_many_parameters_is_rejected(owner: str) -> None:
    parameters = {str(number): {"bool_param": True} for number in range(10_001)}
    fields = {"parameters": parameters}
    with pytest.raises(StatusError, match="the message has 10001 parameters; at most 10000 are allowed"):
        _read(_request(**fields if owner == "request" else {owner: [{"name": "x", **fields}]}))


@pytest.mark.parametrize("size", [4, 2**21])
def test_bytes_that_are_not_a_message_are_a_decode_error(size: int) -> None:
    with pytest.raises(DecodeError):
        grpc.parse_request(b"\xff" * size)
