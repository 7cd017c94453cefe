"""Classify, Regress and MultiInference on serialized examples: results, and the checks of signatures and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.inference.examples import (
    ExamplesCall,
    InferenceTask,
    MultiInferenceCall,
    classify,
    multi_inference,
    regress,
)
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import StatusError
from savedmodel_bakery.wire.tensors import Tensor

EXAMPLES = [b"", b"ab"]  # the fake model computes with their lengths
CLASSIFY = InferenceTask("m", "classify", "tensorflow/serving/classify")
REGRESS = InferenceTask("m", "regress", "tensorflow/serving/regress")


def error_of(call: Any, *arguments: Any) -> str:
    with pytest.raises(StatusError) as caught:
        call(*arguments, RequestContext())
    return str(caught.value)


def test_classify_returns_labels_and_scores(servable: Servable) -> None:
    classes, scores = classify(servable, ExamplesCall("classify", EXAMPLES), RequestContext())
    assert classes is not None
    assert scores is not None
    assert ([[b"a", b"b"]] * 2, [[0.0, 1.0], [2.0, 3.0]]) == (classes.tolist(), scores.tolist())


def test_a_classifier_may_lack_labels(servable: Servable, runtime: Any) -> None:
    del runtime.signatures["classify"].outputs["classes"]
    classes, scores = classify(servable, ExamplesCall("classify", EXAMPLES), RequestContext())
    assert classes is None
    assert scores is not None
    assert [["s:0"]] == [fetches for _, fetches, _ in runtime.runs]


def test_regress_returns_one_value_per_example(servable: Servable) -> None:
    assert [2.0, 3.0] == regress(servable, ExamplesCall("regress", EXAMPLES), RequestContext()).tolist()


def test_all_tasks_of_a_multi_inference_share_one_run(servable: Servable, runtime: Any) -> None:
    context = RequestContext(timeout_s=2.5)
    values, (_, scores) = multi_inference(servable, MultiInferenceCall([REGRESS, CLASSIFY], EXAMPLES), context)
    assert isinstance(values, np.ndarray)
    assert ([2.0, 3.0], [[0.0, 1.0], [2.0, 3.0]]) == (values.tolist(), scores.tolist())
    [(_, fetches, given)] = runtime.runs
    assert (["r:0", "c:0", "s:0"], context) == (fetches, given)


@pytest.mark.parametrize("call", [classify, regress])
def test_an_unknown_signature(servable: Servable, call: Any) -> None:
    assert "INVALID_ARGUMENT: No signature was found with the name: nosuch" == error_of(
        call, servable, ExamplesCall("nosuch", EXAMPLES)
    )


def test_no_examples_are_rejected_after_the_signature_is_checked(servable: Servable) -> None:
    assert "INVALID_ARGUMENT: Input is empty." == error_of(classify, servable, ExamplesCall("classify", []))
    assert "INVALID_ARGUMENT: Expected one input Tensor." == error_of(classify, servable, ExamplesCall("shared", []))


@pytest.mark.parametrize(
    ("call", "signature_name", "reason"),
    [
        (classify, "serving_default", "No classification inputs found in SignatureDef: "),
        (classify, "regress", 'Expected classification signature outputs to contain at least one of "classes" or'),
        (regress, "serving_default", "Expected one output Tensor."),
        (regress, "classify", "Expected one output Tensor."),
        (regress, "custom", "No regression inputs found in SignatureDef: "),
    ],
)
def test_a_signature_that_does_not_fit(servable: Servable, call: Any, signature_name: str, reason: str) -> None:
    error = error_of(call, servable, ExamplesCall(signature_name, EXAMPLES))
    assert error.startswith(f"INVALID_ARGUMENT: {reason}")


def test_the_method_name_is_checked_on_request(servable: Servable, runtime: Any) -> None:
    runtime.signatures["regress"].method_name = "tensorflow/serving/predict"
    assert [2.0, 3.0] == regress(servable, ExamplesCall("regress", EXAMPLES), RequestContext()).tolist()
    assert (
        "INVALID_ARGUMENT: Expected regression signature method_name to be tensorflow/serving/regress. Was: "
        "tensorflow/serving/predict"
    ) == error_of(regress, servable, ExamplesCall("regress", EXAMPLES, check_method_name=True))


def tensor(array: Any, dtype: str = "float") -> Tensor:
    return Tensor(np.asarray(array), dtypes.BY_NAME[dtype])


@pytest.mark.parametrize(
    ("call", "name", "output", "reason"),
    [
        (classify, "s:0", tensor([1.0, 2.0]), "Expected Tensor shape: [batch_size num_classes] but got [2]"),
        (classify, "s:0", tensor([[1], [2]], "int32"), "Expected scores Tensor of DT_FLOAT. Got: DT_INT32"),
        (classify, "s:0", tensor([[1.0]]), "Expected scores output batch size of 2. Got: 1"),
        (
            classify,
            "s:0",
            tensor([[1.0], [2.0]]),
            "Tensors class and score should match in dim_size(1). Got 2 vs. 1",
        ),
        (
            regress,
            "r:0",
            tensor([[1.0, 2.0]] * 2),
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got [2,2]",
        ),
        (regress, "r:0", tensor([1.0]), "Input batch size did not match output batch size: 2 vs. 1"),
        (regress, "r:0", tensor([1, 2], "int32"), "Expected output Tensor of DT_FLOAT.  Got: DT_INT32"),
    ],
)
def test_malformed_outputs(servable: Servable, runtime: Any, call: Any, name: str, output: Tensor, reason: str) -> None:
    runtime.outputs[name] = output
    signature_name = "classify" if call is classify else "regress"
    assert f"INVALID_ARGUMENT: {reason}" == error_of(call, servable, ExamplesCall(signature_name, EXAMPLES))


@pytest.mark.parametrize(
    ("tasks", "reason"),
    [
        ([CLASSIFY, REGRESS._replace(model_name="")], "INVALID_ARGUMENT: Found ModelSpec with an empty model name."),
        (
            [CLASSIFY, REGRESS._replace(model_name="n")],
            "INVALID_ARGUMENT: All ModelSpecs in a MultiInferenceRequest must access the same model name.",
        ),
        ([CLASSIFY, CLASSIFY], "INVALID_ARGUMENT: Duplicate evaluation of signature: classify"),
        (
            [CLASSIFY._replace(signature_name="nosuch")],
            "INVALID_ARGUMENT: Requested signature not found in model graph: nosuch",
        ),
        (
            [CLASSIFY._replace(method_name="my/method")],
            "UNIMPLEMENTED: Unsupported signature method_name: my/method",
        ),
        ([CLASSIFY._replace(method_name=REGRESS.method_name)], "INVALID_ARGUMENT: Expected one output Tensor."),
    ],
    ids=["no model", "two models", "repeated signature", "unknown signature", "unknown method", "method does not fit"],
)
def test_invalid_tasks(servable: Servable, runtime: Any, tasks: list[InferenceTask], reason: str) -> None:
    assert reason == error_of(multi_inference, servable, MultiInferenceCall(tasks, EXAMPLES))
    assert [] == runtime.runs
