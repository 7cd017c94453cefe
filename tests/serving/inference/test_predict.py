"""Predict on tensors: what it returns, and its checks in tensorflow_model_server's order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.inference.predict import (
    PredictCall,
    SignatureNotFoundError,
    find_signature,
    input_dtypes,
    predict,
)
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor


def floats(*values: float) -> Tensor:
    return Tensor(np.float32(values), dtypes.BY_NAME["float"])


class Undecodable(Mapping[str, Tensor]):
    """Inputs whose values cannot be decoded."""

    def __init__(self, *aliases: str) -> None:
        self._aliases = aliases

    def __getitem__(self, alias: str) -> Tensor:
        raise invalid_argument("not a tensor")

    def __contains__(self, alias: object) -> bool:
        return alias in self._aliases

    def __iter__(self) -> Iterator[str]:
        return iter(self._aliases)

    def __len__(self) -> int:
        return len(self._aliases)


def error_of(servable: Servable, *arguments: Any, **options: Any) -> str:
    with pytest.raises(StatusError) as caught:
        predict(servable, PredictCall(*arguments, **options), RequestContext())
    return str(caught.value)


def test_outputs_are_returned_by_alias(servable: Servable) -> None:
    outputs = predict(servable, PredictCall("", {"x": floats(1, 2)}), RequestContext())
    assert {"y": [2.5, 3.0], "y2": [3.5, 4.0]} == {alias: tensor.array.tolist() for alias, tensor in outputs.items()}


def test_only_filtered_outputs_are_fetched_in_the_order_of_the_filter(servable: Servable, runtime: Any) -> None:
    assert ["y2", "y"] == list(predict(servable, PredictCall("", {"x": floats(1)}, ["y2", "y"]), RequestContext()))
    assert ["y2"] == list(predict(servable, PredictCall("", {"x": floats(1)}, ["y2"]), RequestContext()))
    assert [["y2:0", "y:0"], ["y2:0"]] == [fetches for _, fetches, _ in runtime.runs]


def test_the_runtime_gets_the_context_of_the_request(servable: Servable, runtime: Any) -> None:
    context = RequestContext(timeout_s=1.5)
    predict(servable, PredictCall("", {"x": floats(1)}), context)
    assert [context] == [given for _, _, given in runtime.runs]


def test_a_missing_input_gets_the_default_of_the_signature(servable: Servable, runtime: Any) -> None:
    predict(servable, PredictCall("defaults", {"x": floats(1)}), RequestContext())
    predict(servable, PredictCall("defaults", {"x": floats(1), "k": floats(9)}), RequestContext())
    assert [[7.0], [9.0]] == [feeds["k:0"].array.tolist() for feeds, _, _ in runtime.runs]


def test_names_are_checked_before_any_input_is_decoded(servable: Servable) -> None:
    assert (
        "INVALID_ARGUMENT: input size does not match signature: 2!=1 len({x,z}) != len({x}). Sent extra: {z}. Missing "
        "but required: {}."
    ) == error_of(servable, "", Undecodable("x", "z"))
    assert error_of(servable, "", Undecodable("z")).startswith(
        "INVALID_ARGUMENT: Signature input alias: x(feed name: x:0) not found in request"
    )


def test_an_undecodable_input_is_a_parsing_error_that_precedes_later_checks(servable: Servable) -> None:
    assert "INVALID_ARGUMENT: tensor parsing error: x" == error_of(servable, "", Undecodable("x"), ["nosuch"])


def test_an_unknown_input_in_place_of_one_with_a_default(servable: Servable) -> None:
    assert "INVALID_ARGUMENT: Inputs contains invalid name. Used request inputs: x, request input: x,z" == error_of(
        servable, "defaults", {"x": floats(1), "z": floats(1)}
    )


@pytest.mark.parametrize(
    ("output_filter", "reason"),
    [
        (["q"], "output tensor alias not found in signature: q Outputs expected to be in the set {y,y2}."),
        (["y", "y"], "duplicate output tensor alias: y"),
    ],
    ids=["unknown", "repeated"],
)
def test_invalid_output_filters(servable: Servable, output_filter: list[str], reason: str) -> None:
    assert f"INVALID_ARGUMENT: {reason}" == error_of(servable, "", {"x": floats(1)}, output_filter)


def test_one_tensor_for_two_inputs_is_tensorflows_error(servable: Servable) -> None:
    assert 'INVALID_ARGUMENT: Endpoint "x:0" fed more than once.' == error_of(
        servable, "shared", {"a": floats(1), "b": floats(1)}
    )


def test_a_custom_method_is_rejected_only_on_request(servable: Servable) -> None:
    assert error_of(servable, "custom", {"x": floats(1)}, check_method_name=True) == (
        "INTERNAL: Expected prediction signature method_name to be one of {tensorflow/serving/predict, "
        "tensorflow/serving/classify, tensorflow/serving/regress}. Was: my/method"
    )
    assert [2.5] == predict(servable, PredictCall("custom", {"x": floats(1)}), RequestContext())["y"].array.tolist()


def test_an_unknown_signature_is_named(servable: Servable) -> None:
    assert 'FAILED_PRECONDITION: Serving signature key "nosuch" not found.' == error_of(servable, "nosuch", {})
    with pytest.raises(SignatureNotFoundError) as caught:
        find_signature(servable.signatures, "nosuch")
    assert "nosuch" == caught.value.name


def test_input_dtypes_are_those_of_the_signature(servable: Servable, runtime: Any) -> None:
    assert {"x": dtypes.BY_NAME["float"]} == input_dtypes(servable.signatures, "")
    runtime.signatures["serving_default"].inputs["x"].dtype = 20
    with pytest.raises(StatusError, match="invalid tensor element type 20"):
        input_dtypes(servable.signatures, "")
    with pytest.raises(SignatureNotFoundError, match='Serving signature key "nosuch" not found'):
        input_dtypes(servable.signatures, "nosuch")
