"""Which inputs match a signature, and the errors for those that do not."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from savedmodel_bakery.answers.signatures import read_signatures
from savedmodel_bakery.errors import InvalidResponseError, RequestRefusedError
from savedmodel_bakery.wire.status import Code


def tensor(dtype: str, shape: list[int] | None) -> dict[str, Any]:
    dims = [] if shape is None else [{"size": str(size), "name": ""} for size in shape]
    return {"dtype": dtype, "tensor_shape": {"dim": dims, "unknown_rank": shape is None}, "name": "x:0"}


def document(inputs: dict[str, Any], defaults: tuple[str, ...] = ()) -> dict[str, Any]:
    definition = {"inputs": inputs, "outputs": {}, "method_name": "", "defaults": {alias: {} for alias in defaults}}
    return {
        "model_spec": {"name": "m", "version": "7"},
        "metadata": {"signature_def": {"signature_def": {"run": definition}}},
    }


def fit(dtype: str, shape: list[int] | None, value: Any) -> np.ndarray:
    return read_signatures(document({"x": tensor(dtype, shape)})).find("run").fit({"x": value})["x"]


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("DT_FLOAT", [1, 2.5], np.float32([1, 2.5])),
        ("DT_HALF", 1, np.float16(1)),
        ("DT_BFLOAT16", [1.5], np.array([1.5], ml_dtypes.bfloat16)),
        ("DT_UINT8", [0, 255], np.uint8([0, 255])),
        ("DT_COMPLEX64", [1, 2j], np.complex64([1, 2j])),
        ("DT_BOOL", [True], np.array([True])),
        ("DT_INT8", [], np.zeros(0, np.int8)),
        ("DT_STRING", ["é", b"\0"], np.array(["é", b"\0"], object)),
        ("DT_STRING", [], np.zeros(0, object)),
        ("DT_UINT64", 2**64 - 1, np.uint64(2**64 - 1)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_python_numbers_are_converted_to_the_declared_type(dtype: str, value: Any, expected: np.ndarray) -> None:
    array = fit(dtype, None, value)
    assert (expected.dtype, expected.shape, expected.tolist()) == (array.dtype, array.shape, array.tolist())


@pytest.mark.parametrize(
    ("dtype", "shape", "value", "actual", "declared"),
    [
        pytest.param("DT_FLOAT", [-1], np.zeros(2), "float64[2]", "float32[?]", id="type of an array"),
        pytest.param("DT_FLOAT", [-1, 3], np.zeros((2, 4), "f4"), "float32[2,4]", "float32[?,3]", id="size"),
        pytest.param("DT_FLOAT", [], np.zeros(1, "f4"), "float32[1]", "float32[]", id="rank"),
        pytest.param("DT_INT8", None, [128], "int64[1]", "int8[…]", id="number too large"),
        pytest.param("DT_INT32", None, [0.5], "float64[1]", "int32[…]", id="fraction for an integer"),
        pytest.param("DT_HALF", None, [1e9], "float64[1]", "float16[…]", id="number that would be infinite"),
        pytest.param("DT_BOOL", None, [1], "int64[1]", "bool[…]", id="number for a bool"),
        pytest.param("DT_STRING", None, [1], "int64[1]", "string[…]", id="number for a string"),
        pytest.param("DT_FLOAT", None, ["1"], "string[1]", "float32[…]", id="string for a number"),
        pytest.param("DT_QINT8", [2], np.zeros(3, np.int8), "int8[3]", "qint8[2]", id="quantised"),
    ],
)
def test_an_input_that_does_not_match_is_refused_with_the_declaration(
    dtype: str, shape: list[int] | None, value: Any, actual: str, declared: str
) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        fit(dtype, shape, value)
    expected = f'input "x" is {actual}; signature "run" of model "m" version 7 takes x: {declared}'
    assert (Code.INVALID_ARGUMENT, expected) == (caught.value.code, caught.value.message)


def test_an_error_lists_everything_that_does_not_match() -> None:
    run = read_signatures(document({"a": tensor("DT_FLOAT", [-1]), "b": tensor("DT_INT32", [])})).find("run")
    with pytest.raises(RequestRefusedError) as caught:
        run.fit({"a": np.zeros(1), "c": {"d": [np.zeros(2)]}})
    assert (
        'unknown input "c/d/0"; input "b" is missing; input "a" is float64[1]; '
        'signature "run" of model "m" version 7 takes a: float32[?], b: int32[]'
    ) == caught.value.message


def test_inputs_of_a_server_that_states_no_defaults_are_required() -> None:
    """As in older TensorFlow Serving."""
    metadata = document({"x": tensor("DT_FLOAT", [-1]), "y": tensor("DT_FLOAT", [-1])})
    del metadata["metadata"]["signature_def"]["signature_def"]["run"]["defaults"]
    with pytest.raises(RequestRefusedError, match=r'input "y" is missing; input "x" is float32\[1,1\]'):
        read_signatures(metadata).find("run").fit({"x": [[1]]})


def test_an_input_with_a_default_is_optional() -> None:
    run = read_signatures(document({"a": tensor("DT_FLOAT", []), "b": tensor("DT_INT32", [])}, ("b",))).find("run")
    assert {"a": 1.0} == run.fit({"a": 1})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1], [1, 2]], 'input "x" is not an array: '),
        ({"y": 1}, 'input "x" is a dict; it must be an array'),
        (None, 'input "x" is None; it must be an array'),
        ([1, None], 'input "x" contains None; it must be an array'),
        (np.array(["a", None], object), 'input "x" contains None; it must be an array'),
    ],
    ids=["ragged", "dict", "None", "None in a list", "None in an array"],
)
def test_a_value_that_is_not_an_array_is_a_value_error(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit("DT_FLOAT", None, value)


def test_an_unknown_signature_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestRefusedError) as caught:
        read_signatures(document({})).find("serve")
    expected = 'signature "serve" not found in model "m" version 7; it has "run"'
    assert (Code.FAILED_PRECONDITION, expected) == (caught.value.code, caught.value.message)


@pytest.mark.parametrize("metadata", [{}, {"model_spec": {"name": "m"}, "metadata": []}], ids=["empty", "other"])
def test_other_documents_are_invalid_responses(metadata: Any) -> None:
    with pytest.raises(InvalidResponseError, match="the metadata are not a valid GetModelMetadataResponse"):
        read_signatures(metadata)
