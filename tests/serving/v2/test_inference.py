"""Signatures that are unusual, on a registry without TensorFlow."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import OverloadError
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry, State, read_version
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.serving.v2 import descriptions
from savedmodel_bakery.serving.v2.inference import infer as run_inference
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.v2 import http_decode, http_encode
from savedmodel_bakery.wire.v2.infer import InferResponse


def infer(
    registry: Registry,
    inputs: dict[str, np.ndarray],
    context: RequestContext | None = None,
    **options: Any,
) -> InferResponse:
    body = http_encode.encode_request(inputs, **options)
    request = http_decode.decode_request(body.content, str(body.header_length))
    return run_inference(registry, ModelChoice("m"), request, context or RequestContext(), check_method_names=True)


X = np.float32([1])


def test_an_input_with_a_default_may_be_left_out(registry: Registry) -> None:
    assert [8] == infer(registry, {"x": X}).outputs["y"].array.tolist()
    assert [3] == infer(registry, {"x": X, "k": 2 * X}).outputs["y"].array.tolist()
    with pytest.raises(StatusError, match='needs the inputs "x", which the request does not have'):
        infer(registry, {"k": X})


def test_types_that_the_protocol_lacks_are_an_error_unless_they_are_left_out(registry: Registry) -> None:
    with pytest.raises(StatusError, match='output "z" of signature "complex" of model "m" version 3 is complex64'):
        infer(registry, {"x": X}, signature_name="complex")
    assert [1] == infer(registry, {"x": X}, signature_name="complex", outputs=["y"]).outputs["y"].array.tolist()
    with pytest.raises(StatusError, match='input "x" is qint8, which the v2 protocol cannot express'):
        infer(registry, {"x": np.int8([1])}, signature_name="quantised")


def test_strings_are_counted_before_they_are_decoded(registry: Registry) -> None:
    strings = np.array([b""] * 11, object)
    with pytest.raises(OverloadError, match="the request has 11 rows; at most 10"):
        infer(registry, {"s": strings}, RequestContext(max_rows=10), signature_name="text")


@pytest.mark.parametrize("shape", [(1, 2, 3), (4, 2, 3), (0, 2, 3)])
def test_shapes_that_the_signature_declares_are_taken(registry: Registry, shape: tuple[int, ...]) -> None:
    response = infer(registry, {"x": np.ones(shape, np.float32)}, signature_name="pixels")
    assert shape == response.outputs["y"].array.shape


@pytest.mark.parametrize("shape", [(1, 3, 2), (2, 3), (1, 1, 2, 3), (6,), (1, 2, 0)])
def test_other_ranks_and_sizes_are_refused(registry: Registry, shape: tuple[int, ...]) -> None:
    expected = f'input "x" has the shape {list(shape)}; must be [-1, 2, 3] for signature "pixels" of model "m"'
    with pytest.raises(StatusError, match=re.escape(expected)) as caught:
        infer(registry, {"x": np.ones(shape, np.float32)}, signature_name="pixels")
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_scalar_of_a_tf_lite_file_may_be_of_unknown_rank(registry: Registry) -> None:
    for shape in ((), (3,), (2, 2)):
        response = infer(registry, {"x": np.ones(shape, np.float32)}, signature_name="scalar")
        assert shape == response.outputs["y"].array.shape


def test_a_column_of_strings_is_taken_as_a_list(registry: Registry) -> None:
    """MLServer's codecs send strings so."""
    strings = np.array([b"a", b"b"], object)
    for shape in ((2,), (2, 1)):
        response = infer(registry, {"s": strings.reshape(shape)}, signature_name="images")
        assert strings.tolist() == response.outputs["y"].array.tolist()
    for shape in ((1, 2), (2, 1, 1), (1, 2, 1), ()):
        with pytest.raises(StatusError, match=r"must be \[-1\] for"):
            infer(registry, {"s": np.resize(strings, shape)}, signature_name="images")


def test_a_shape_of_unknown_rank_is_minus_one(registry: Registry, servable: Servable) -> None:
    metadata = descriptions.model_metadata(registry, servable, "")
    assert [{"name": "y", "datatype": "FP32", "shape": [-1]}] == metadata["outputs"]
    with pytest.raises(StatusError, match='output "z" of signature "complex" is complex64'):
        descriptions.model_metadata(registry, servable, "complex")


def test_the_configuration_describes_all_signatures_if_v2_lacks_a_type_of_the_default_one(
    registry: Registry, servable: Servable
) -> None:
    config = descriptions.model_config(registry, servable)
    assert ["k", "x"] == [entry["name"] for entry in config["input"]]
    servable.signatures["serving_default"] = servable.signatures["complex"]
    config = descriptions.model_config(registry, servable)
    assert ([], []) == (config["input"], config["output"])
    metadata = json.loads(config["parameters"]["tensorflow_serving_metadata"]["string_value"])
    assert "text" in metadata["metadata"]["signature_def"]["signature_def"]


def test_the_index_has_the_state_and_the_error_of_each_version(registry: Registry) -> None:
    registry.update(registry.add("m", 10, Path("/m/10")), State.LOADING)
    failed = registry.add("a", 1, Path("/a/1"))
    registry.update(failed, State.END, error=StatusError(Code.NOT_FOUND, "no such file"))
    rows = [tuple(row.values()) for row in descriptions.repository_index(registry, bool, ready_only=False)]
    assert [("a", "1", "UNAVAILABLE", "no such file"), ("m", "3", "READY", ""), ("m", "10", "LOADING", "")] == rows
    ready = descriptions.repository_index(registry, lambda name: name != "a", ready_only=True)
    assert [("m", "3")] == [(row["name"], row["version"]) for row in ready]


@pytest.mark.parametrize(("text", "version"), [("", None), ("0", 0), ("007", 7), (str(2**63 - 1), 2**63 - 1)])
def test_versions_are_numbers(text: str, version: int | None) -> None:
    assert version == read_version(text)


@pytest.mark.parametrize("text", ["latest", "-1", "1.0", " 1", "²", str(2**63), "9" * 5000])
def test_other_versions_are_invalid(text: str) -> None:
    with pytest.raises(StatusError, match=r"invalid version .*: must be a number between 0 and 9223372036854775807"):
        read_version(text)
