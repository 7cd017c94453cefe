"""Inputs of a model beside the image: what the methods of a client send."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from savedmodel_bakery import RequestRefusedError
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.tasks.numbers import REGRESS
from savedmodel_bakery.client.calls import Metadata, ModelSpec, run_flow
from savedmodel_bakery.client.flows import Flows

OUTPUTS = {"value": ("DT_FLOAT", []), "ok": ("DT_BOOL", []), "error": ("DT_STRING", [])}
OTHERS: dict[str, Any] = {"tab": ("DT_FLOAT", [2]), "text": ("DT_STRING", [])}
SIGNATURES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "serving_default": ({"image": ("DT_STRING", []), "image_2": ("DT_STRING", []), **OTHERS}, OUTPUTS),
    "pixels": ({"pixels": ("DT_UINT8", [2, 2, 3]), "pixels_2": ("DT_UINT8", [3, 2, 3]), **OTHERS}, OUTPUTS),
}
ARRAY = np.zeros((2, 2, 3), np.uint8)
SECOND_ARRAY = np.ones((3, 2, 3), np.uint8)


def tensors(declared: dict[str, Any]) -> dict[str, Any]:
    return {
        alias: {"dtype": dtype, "tensor_shape": {"dim": [{"size": str(size)} for size in (-1, *sizes)]}}
        for alias, (dtype, sizes) in declared.items()
    }


class Server:
    """Keeps what it is sent, and answers the number of each row."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def send(self, call: Any) -> Any:
        if isinstance(call, Metadata):
            definitions = {
                name: {"inputs": tensors(inputs), "outputs": tensors(outputs), "method_name": "predict"}
                for name, (inputs, outputs) in SIGNATURES.items()
            }
            return {
                "model_spec": {"name": "m", "version": "1"},
                "metadata": {"signature_def": {"signature_def": definitions}},
            }
        self.calls.append(call)
        count = len(call.inputs["tab"])
        outputs = {"value": np.arange(count, dtype=np.float32), "ok": np.ones(count, bool)}
        return Prediction({**outputs, "error": np.array([b""] * count, object)}, "m", 1, call.signature)


@pytest.fixture
def server() -> Server:
    return Server()


def regress(server: Server, images: Any, inputs: dict[str, Any]) -> Any:
    return run_flow(Flows(ModelSpec("m")).run_task(REGRESS, images, inputs), server.send)


def test_one_image_has_the_values_themselves(server: Server) -> None:
    result = regress(server, b"a", {"tab": [1, 2], "text": "é", "image_2": b"b"})
    assert {"value": 0.0} == result.values
    [call] = server.calls
    np.testing.assert_array_equal(np.array([[1, 2]], np.float32), call.inputs["tab"], strict=True)
    assert ([b"a"], [b"b"], ["é"]) == tuple(call.inputs[name].tolist() for name in ("image", "image_2", "text"))


def test_several_images_have_rows_which_follow_them_to_their_signatures(server: Server) -> None:
    """A pair of arrays of the network's sizes is sent as it is, and a pair with a file as files."""
    tab = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    regress(server, [b"a", ARRAY, ARRAY], {"tab": tab, "text": ["x", "y", "z"], "image_2": [b"b", SECOND_ARRAY, b"c"]})
    files, pixels = server.calls
    assert ("serving_default", "pixels") == (files.signature, pixels.signature)
    np.testing.assert_array_equal(tab[[0, 2]], files.inputs["tab"])
    assert [b"b", b"c"] == files.inputs["image_2"].tolist()
    np.testing.assert_array_equal(tab[[1]], pixels.inputs["tab"])
    assert (["y"], 1) == (pixels.inputs["text"].tolist(), pixels.inputs["pixels_2"].max())


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        pytest.param(
            {"tab": [[1, 2]]}, ValueError, 'invalid inputs: "tab" has 1 rows; must have 2, one per', id="rows"
        ),
        pytest.param({"tab": 1.0}, ValueError, '"tab" has no rows; must have 2, one per image', id="no rows"),
        pytest.param({"tab": [[1, 2]] * 2}, RequestRefusedError, 'input "text" is missing', id="missing"),
        pytest.param({"x": [1, 2]}, RequestRefusedError, 'unknown input "x"', id="unknown"),
        pytest.param({"tab": [[1], [2]]}, RequestRefusedError, 'input "tab" is float32[2,1]', id="shape"),
        pytest.param({"tab": np.zeros((2, 2))}, RequestRefusedError, 'input "tab" is float64[2,2]', id="dtype"),
    ],
)
def test_inputs_that_do_not_fit_are_not_sent(
    server: Server, inputs: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        regress(server, [b"a", b"b"], inputs)
    assert [] == server.calls
