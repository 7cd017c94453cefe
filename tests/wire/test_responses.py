"""REST responses for errors, model status and model metadata."""

from __future__ import annotations

import json

import pytest

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.responses import encode_error, encode_metadata, encode_status


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param("no", b'{\n    "error": "no"\n}', id="plain"),
        pytest.param('a "b"\n\x00é', b'{\n    "error": "a \\"b\\"\\n\\u0000' + "é".encode() + b'"\n}', id="escaped"),
        pytest.param("\udcff", b'{\n    "error": "\xff"\n}', id="not-utf-8"),
    ],
)
def test_an_error_is_valid_json_for_every_message(message: str, expected: bytes) -> None:
    assert expected == encode_error(message)
    json.loads(expected.decode(errors="replace"))


def test_status_has_defaults_names_and_64_bit_numbers_as_strings() -> None:
    response = schema.GetModelStatusResponse()
    response.model_version_status.add(version=2, state="AVAILABLE").status.SetInParent()
    failed = response.model_version_status.add(version=1, state="END")
    failed.status.error_code = 3
    failed.status.error_message = "bad"
    expected = (
        '{\n "model_version_status": [\n'
        '  {\n   "version": "2",\n   "state": "AVAILABLE",\n'
        '   "status": {\n    "error_code": "OK",\n    "error_message": ""\n   }\n  },\n'
        '  {\n   "version": "1",\n   "state": "END",\n'
        '   "status": {\n    "error_code": "INVALID_ARGUMENT",\n    "error_message": "bad"\n   }\n'
        "  }\n ]\n}\n"
    )
    assert expected == encode_status(response).decode()


def test_status_without_versions_is_an_empty_list() -> None:
    assert {"model_version_status": []} == json.loads(encode_status(schema.GetModelStatusResponse()))


def test_metadata_unpacks_the_signatures() -> None:
    """`signature_def` is nested twice, without `@type`, and empty fields are present."""
    signatures = schema.SignatureDefMap()
    signature = signatures.signature_def["serving_default"]
    signature.method_name = "tensorflow/serving/predict"
    signature.inputs["x"].name = "x:0"
    signature.inputs["x"].dtype = 1
    signature.inputs["x"].tensor_shape.dim.add(size=-1)
    response = schema.GetModelMetadataResponse()
    response.model_spec.name = "m"
    response.model_spec.version.value = 123
    response.metadata["signature_def"].Pack(signatures)
    shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    expected = {
        "model_spec": {"name": "m", "signature_name": "", "version": "123"},
        "metadata": {
            "signature_def": {
                "signature_def": {
                    "serving_default": {
                        "inputs": {"x": {"dtype": "DT_FLOAT", "tensor_shape": shape, "name": "x:0"}},
                        "outputs": {},
                        "method_name": "tensorflow/serving/predict",
                        "defaults": {},
                    }
                }
            }
        },
    }
    text = encode_metadata(response).decode()
    assert expected == json.loads(text)
    assert text.startswith('{\n"model_spec":{\n "name": "m",\n "version": "123",\n "signature_name": ""\n}\n,\n')
