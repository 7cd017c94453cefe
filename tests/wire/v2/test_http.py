"""Bodies of inference over HTTP, in both roles."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from v2_values import VALUES

from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor
from savedmodel_bakery.wire.v2 import http_decode, http_encode
from savedmodel_bakery.wire.v2.infer import InferResponse, RequestedOutput


def _body(document: dict[str, Any], data: bytes | None = None) -> tuple[bytes, str | None]:
    text = json.dumps(document).encode()
    return (text, None) if data is None else (text + data, str(len(text)))


def _input(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2.5], **changes}


def _decode(document: dict[str, Any], data: bytes | None = None) -> list[np.ndarray]:
    return [sent.decode().array for sent in http_decode.decode_request(*_body(document, data)).inputs]


@pytest.mark.parametrize("datatype", VALUES)
def test_a_request_of_our_client_is_read_as_it_was_sent(datatype: str) -> None:
    body = http_encode.encode_request(
        {"x": VALUES[datatype], "y": np.float32(7)}, signature_name="top_k", outputs=["a"]
    )
    request = http_decode.decode_request(body.content, str(body.header_length))
    assert ("top_k", [RequestedOutput("a", is_binary=True)]) == (request.signature_name, request.outputs)
    x, y = (sent.decode() for sent in request.inputs)
    assert VALUES[datatype].dtype == x.array.dtype
    np.testing.assert_array_equal(VALUES[datatype], x.array)
    assert ((), 7) == (y.array.shape, y.array)


@pytest.mark.parametrize("datatype", VALUES)
def test_a_request_for_servers_without_binary_data_is_json(datatype: str) -> None:
    array = VALUES[datatype]
    if datatype in ("FP16", "BF16"):
        with pytest.raises(StatusError, match=f'^INVALID_ARGUMENT: input "x" is {datatype}, .* send it over gRPC'):
            http_encode.encode_request({"x": array}, binary=False)
        return
    if datatype == "FP32":
        with pytest.raises(StatusError, match=r'^INVALID_ARGUMENT: input "x" has a value that JSON lacks, NaN or infi'):
            http_encode.encode_request({"x": array}, binary=False)
        array = np.array([[0.1, 1e-42]], np.float32)
    body = http_encode.encode_request({"x": array}, outputs=["a"], binary=False)
    assert ("application/json", [{"name": "a"}]) == (body.content_type, json.loads(body.content)["outputs"])
    [x] = [sent.decode() for sent in http_decode.decode_request(body.content, None).inputs]
    assert array.dtype == x.array.dtype
    np.testing.assert_array_equal(array, x.array)


@pytest.mark.parametrize(
    ("strings", "expected"),
    [
        (np.array([b"a", "é"], object), {"data": ["a", "é"]}),
        (np.array([[b"a"], [b"\xff"]], object), {"data": ["YQ==", "/w=="], "parameters": {"content_type": "base64"}}),
    ],
    ids=["text", "bytes"],
)
def test_json_has_strings_in_base64_only_if_they_are_not_utf8(strings: np.ndarray, expected: dict[str, Any]) -> None:
    [sent] = json.loads(http_encode.encode_request({"x": strings}, binary=False).content)["inputs"]
    assert {"name": "x", "datatype": "BYTES", "shape": list(strings.shape), **expected} == sent


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("datatype", VALUES)
def test_a_response_is_read_as_it_was_sent(datatype: str, is_binary: bool) -> None:
    array = VALUES[datatype]
    sent = InferResponse("m", "3", {"y": Tensor(array, dtypes.of_array(array))}, "7")
    requested = [RequestedOutput("y", is_binary)]
    if not is_binary and datatype in ("FP16", "BF16"):
        with pytest.raises(StatusError, match=f'output "y" is {datatype}, which travels as binary data only'):
            http_encode.encode_response(sent, requested)
        return
    body = http_encode.encode_response(sent, requested)
    assert is_binary == (body.header_length is not None)
    assert {True: "application/octet-stream", False: "application/json"}[is_binary] == body.content_type
    received = http_decode.decode_response(body.content, str(body.header_length) if is_binary else None)
    assert ("m", "3", "7") == (received.model_name, received.model_version, received.request_id)
    assert array.dtype == received.outputs["y"].array.dtype
    np.testing.assert_array_equal(array, received.outputs["y"].array)


def test_binary_data_is_laid_out_as_the_extension_says() -> None:
    """Little-endian numbers; the length of each string as four bytes before it; tensors in the order of the JSON."""
    inputs = {"x": np.array([1, -2], np.int16), "s": np.array([b"ab", b""], object)}
    body = http_encode.encode_request(inputs)
    assert b"\x01\x00\xfe\xff\x02\x00\x00\x00ab\x00\x00\x00\x00" == body.content[body.header_length :]


@pytest.mark.parametrize("data", [[[1, 2, 3], [4, 5, 6]], [1, 2, 3, 4, 5, 6]], ids=["nested", "flat"])
def test_json_data_may_be_nested_or_flat(data: Any) -> None:
    [array] = _decode({"inputs": [_input(datatype="UINT16", shape=[2, 3], data=data)]})
    assert [[1, 2, 3], [4, 5, 6]] == array.tolist()
    assert np.uint16 == array.dtype


def test_strings_in_json_are_utf8_or_base64_of_the_content_type() -> None:
    plain, decoded = _decode(
        {
            "inputs": [
                _input(datatype="BYTES", data=["é", ""]),
                _input(datatype="BYTES", shape=[1], data=["/w=="], parameters={"content_type": "base64"}),
            ]
        }
    )
    assert ["é".encode(), b""] == plain.tolist()
    assert [b"\xff"] == decoded.tolist()


def test_an_output_is_returned_in_base64_on_request() -> None:
    sent = InferResponse("m", "3", {"y": Tensor(np.array([b"\xff"], object), dtypes.STRING)})
    request = http_decode.decode_request(
        *_body({"inputs": [], "outputs": [{"name": "y", "parameters": {"content_type": "base64"}}]})
    )
    body = http_encode.encode_response(sent, request.outputs)
    assert {
        "name": "y",
        "datatype": "BYTES",
        "shape": [1],
        "parameters": {"content_type": "base64"},
        "data": ["/w=="],
    } == json.loads(body.content)["outputs"][0]
    assert [b"\xff"] == http_decode.decode_response(body.content, None).outputs["y"].array.tolist()


def test_an_empty_tensor_needs_no_data() -> None:
    """KServe's client sends null for the data of an empty binary tensor."""
    binary = _input(shape=[0, 4], data=None, parameters={"binary_data_size": 0})
    for array in _decode({"inputs": [binary, _input(shape=[0, 4], data=[])]}, b""):
        assert (0, 4) == array.shape


def test_parameters_choose_which_outputs_are_binary() -> None:
    outputs = [{"name": "a"}, {"name": "b", "parameters": {"binary_data": False}}]
    request = http_decode.decode_request(
        *_body({"inputs": [], "parameters": {"binary_data_output": True, "unknown": [1]}, "outputs": outputs})
    )
    assert [True, False] == [output.is_binary for output in request.outputs]
    assert request.is_binary


BINARY = {"data": None, "parameters": {"binary_data_size": 8}}

INVALID = {
    "no inputs": ({}, b"", '"inputs"'),
    "no list": ({"inputs": {}}, None, '"inputs" must be a list of objects'),
    "no name": ({"inputs": [{"datatype": "FP32"}]}, None, "an input has no name"),
    "no datatype": ({"inputs": [_input(datatype=None)]}, None, 'input "x" has the datatype null; must be one of'),
    "another datatype": ({"inputs": [_input(datatype="COMPLEX64")]}, None, 'has the datatype "COMPLEX64"; must be'),
    "no shape": ({"inputs": [_input(shape=None)]}, None, 'input "x" needs a shape'),
    "negative size": (
        {"inputs": [_input(shape=[-1])]},
        None,
        'input "x" needs a shape: a list of at most 254 integers between 0 and',
    ),
    "boolean size": ({"inputs": [_input(shape=[True])]}, None, "needs a shape"),
    "no data": ({"inputs": [_input(data=None)]}, None, 'input "x" must have either "data" or the parameter'),
    "both": ({"inputs": [_input(parameters={"binary_data_size": 8})]}, bytes(8), "must have either"),
    "few values": ({"inputs": [_input(data=[1])]}, None, r'input "x" has data of shape \[1\]; its shape is \[2\]'),
    "many values": ({"inputs": [_input(data=[1, 2, 3])]}, None, "a flat list of 2 values"),
    "other nesting": ({"inputs": [_input(shape=[2, 1], data=[[1, 2]])]}, None, r"data of shape \[1, 2\]"),
    "irregular": ({"inputs": [_input(data=[[1], 2])]}, None, 'input "x" cannot be read as FP32: '),
    "text": ({"inputs": [_input(data=["a", "b"])]}, None, 'input "x" cannot be read as FP32: JSON Value: "a"'),
    "range": (
        {"inputs": [_input(datatype="INT8", data=[1, 128])]},
        None,
        "cannot be read as INT8: an integer is not between -128 and 127",
    ),
    "fp16": ({"inputs": [_input(datatype="FP16")]}, None, "FP16, which travels as binary data only"),
    "base64": (
        {"inputs": [_input(datatype="BYTES", data=["a", "b"], parameters={"content_type": "base64"})]},
        None,
        'input "x" is not valid base64 at element 0',
    ),
    "base64 of numbers": ({"inputs": [_input(parameters={"content_type": "base64"})]}, None, "is not BYTES"),
    "few bytes": ({"inputs": [_input(shape=[3], **BINARY)]}, bytes(8), "8 bytes of data; 3 values of FP32 need 12"),
    "huge shape": ({"inputs": [_input(shape=[2**40, 2**20], **BINARY)]}, bytes(8), "8 bytes of data"),
    "enormous shape": (
        {"inputs": [_input(shape=[2**63 - 1] * 254, **BINARY)]},
        bytes(8),
        'input "x" has a shape of too many elements: must be at most 9223372036854775807',
    ),
    "enormous shape of JSON": ({"inputs": [_input(shape=[2**63 - 1] * 254)]}, None, "shape of too many elements"),
    "enormous shape of strings": (
        {"inputs": [_input(datatype="BYTES", shape=[2**32, 2**31], **BINARY)]},
        bytes(8),
        "shape of too many elements",
    ),
    "lying size": (
        {"inputs": [_input(**BINARY)]},
        bytes(7),
        'binary_data_size of input "x" is 8; must be a number of bytes, at most the 7 that are left',
    ),
    "no size": ({"inputs": [_input(data=None, parameters={"binary_data_size": "8"})]}, bytes(8), 'is "8"; must be'),
    "surplus": ({"inputs": [_input(**BINARY)]}, bytes(9), "1 bytes after the binary data"),
    "no bool": ({"inputs": [_input(datatype="BOOL", shape=[8], **BINARY)]}, b"\2" * 8, "BOOL that is neither 0 nor 1"),
    "many strings": (
        {"inputs": [_input(datatype="BYTES", shape=[3], **BINARY)]},
        bytes(8),
        "3 elements of BYTES alone",
    ),
    "lying length": (
        {"inputs": [_input(datatype="BYTES", shape=[1], **BINARY)]},
        b"\xff\xff\xff\xff1234",
        "has 8 bytes of data, which end within element 0 of 1",
    ),
    "cut off": (
        {"inputs": [_input(datatype="BYTES", **BINARY)]},
        b"\2\0\0\0ab\0\0",
        "end within element 1 of 2",
    ),
    "long strings": ({"inputs": [_input(datatype="BYTES", shape=[1], **BINARY)]}, bytes(8), "elements of BYTES need 4"),
    "no id": ({"inputs": [], "id": 7}, None, "the id of the request is 7; must be a string"),
    "signature": ({"inputs": [], "parameters": {"signature_name": 1}}, None, "signature_name is 1; must be a string"),
    "many": ({"inputs": [{}] * 10_001}, None, "the message has 10001 inputs; at most 10000 are allowed"),
    "parameters": ({"inputs": [], "parameters": []}, None, "the parameters of the request must be a JSON object"),
    "flag": ({"inputs": [], "parameters": {"binary_data_output": 1}}, None, "binary_data_output of the request is 1"),
}


@pytest.mark.parametrize(("document", "data", "message"), INVALID.values(), ids=INVALID)
def test_a_request_that_is_not_valid_is_an_error_that_names_the_tensor(
    document: dict[str, Any], data: bytes | None, message: str
) -> None:
    with pytest.raises(StatusError, match=message) as raised:
        _decode(document, data)
    assert Code.INVALID_ARGUMENT is raised.value.code


@pytest.mark.parametrize("header_length", ["x", "-1", "3.0", "", "1000", "9" * 5000, "²"])
def test_the_length_of_the_json_must_be_one(header_length: str) -> None:
    with pytest.raises(StatusError, match=r"the header Inference-Header-Content-Length is .*; must be the length"):
        http_decode.decode_request(b'{"inputs":[]}', header_length)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"inputs": [_input(data=None, parameters={"shared_memory_region": "r"})]}, 'input "x" is in shared memory'),
        (
            {"inputs": [], "outputs": [{"name": "y", "parameters": {"classification": 3}}]},
            "classification, which is not",
        ),
    ],
)
def test_extensions_that_are_missing_are_unimplemented(document: dict[str, Any], message: str) -> None:
    with pytest.raises(StatusError, match=message) as raised:
        _decode(document)
    assert Code.UNIMPLEMENTED is raised.value.code


def test_long_names_are_shortened_in_errors() -> None:
    with pytest.raises(StatusError) as raised:
        _decode({"inputs": [_input(name="x" * 10_000_000, datatype="y" * 10_000_000)]})
    assert len(raised.value.message) < 1000


def test_datatypes_that_the_protocol_lacks_are_an_error_that_names_the_tensor() -> None:
    with pytest.raises(StatusError, match='input "x" is complex64, which the v2 protocol cannot express'):
        http_encode.encode_request({"x": np.array([1j], np.complex64)})
    response = InferResponse("m", "1", {"y": Tensor(np.array([1], np.int8), dtypes.BY_NAME["qint8"])})
    with pytest.raises(StatusError, match='output "y" is qint8, which the v2 protocol cannot express'):
        http_encode.encode_response(response, [RequestedOutput("y")])
