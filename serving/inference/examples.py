"""Classify, Regress and MultiInference: serialized tf.Examples in, one result per example out.

Each method checks its signature, names the outputs to fetch and checks what the model returned. All tasks of a
MultiInference share one model run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import text_format

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.inference import claims
from savedmodel_bakery.serving.inference.predict import DEFAULT_SIGNATURE, SignatureNotFoundError, find_signature, run
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.serving.telemetry import metrics
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor

INPUTS = "inputs"


@dataclass(frozen=True)
class ExamplesCall:
    """The arguments of one Classify or Regress; `check_method_name` rejects a signature exported for another method."""

    signature_name: str
    examples: Sequence[bytes]  # serialized
    check_method_name: bool = False


class InferenceTask(NamedTuple):
    """One task of a MultiInference: a method (`tensorflow/serving/classify` or `…/regress`) on a signature."""

    model_name: str
    signature_name: str
    method_name: str


@dataclass(frozen=True)
class MultiInferenceCall:
    """The arguments of one MultiInference."""

    tasks: Sequence[InferenceTask]  # of the same model
    examples: Sequence[bytes]
    check_method_name: bool = False


class Classifications(NamedTuple):
    """Labels and scores by example; one of the two may be missing."""

    classes: np.ndarray | None  # bytes, object [examples, classes]
    scores: np.ndarray | None  # float32 [examples, classes]


class _Method(NamedTuple):
    """How a method uses a signature."""

    name: str  # that a signature exported for it has
    noun: str  # in error texts
    api: str  # label in metrics
    select_outputs: Callable[[Any], list[str]]  # from a SignatureDef to the aliases to fetch; checks that it fits
    read_outputs: Callable[[Mapping[str, Tensor], int], Any]  # from outputs by alias and the number of examples


class _Task(NamedTuple):
    """A method on a signature that fits it, and the aliases of the outputs to fetch."""

    method: _Method
    signature: Any
    outputs: list[str]


def classify(servable: Servable, call: ExamplesCall, context: RequestContext) -> Classifications:
    """Classify each example."""
    result: Classifications = _run_method(servable, _CLASSIFY, call, context)
    return result


def regress(servable: Servable, call: ExamplesCall, context: RequestContext) -> np.ndarray:
    """Return one value per example, float32 [examples]."""
    result: np.ndarray = _run_method(servable, _REGRESS, call, context)
    return result


def multi_inference(
    servable: Servable, call: MultiInferenceCall, context: RequestContext
) -> list[Classifications | np.ndarray]:
    """Run several tasks on the same examples at once; return their results in the order of the tasks."""
    tasks: list[_Task] = []
    seen: set[str] = set()
    for model_name, signature_name, method_name in call.tasks:
        if not model_name:
            raise invalid_argument("Found ModelSpec with an empty model name.")
        if model_name != call.tasks[0].model_name:
            raise invalid_argument("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
        name = signature_name or DEFAULT_SIGNATURE
        if name in seen:
            raise invalid_argument(f"Duplicate evaluation of signature: {name}")
        seen.add(name)
        try:
            signature = find_signature(servable.runtime.signatures, name)
        except SignatureNotFoundError:
            raise invalid_argument(f"Requested signature not found in model graph: {name}") from None
        if method_name not in _METHODS:
            raise StatusError(Code.UNIMPLEMENTED, f"Unsupported signature method_name: {method_name}")
        tasks.append(_make_task(_METHODS[method_name], signature, call.check_method_name))
    results = _run(servable, tasks, call.examples, context)
    metrics.EXAMPLE_COUNTS.labels(servable.name).observe(len(call.examples))
    metrics.EXAMPLE_COUNT_TOTAL.labels(servable.name).inc(len(call.examples))
    return results


def _run_method(servable: Servable, method: _Method, call: ExamplesCall, context: RequestContext) -> Any:
    try:
        signature = find_signature(servable.runtime.signatures, call.signature_name)
    except SignatureNotFoundError as error:
        raise invalid_argument(f"No signature was found with the name: {error.name}") from None
    task = _make_task(method, signature, call.check_method_name)
    return _run(servable, [task], call.examples, context)[0]


def _make_task(method: _Method, signature: Any, check_method_name: bool) -> _Task:
    if check_method_name and signature.method_name != method.name:
        raise invalid_argument(
            f"Expected {method.noun} signature method_name to be {method.name}. Was: {signature.method_name}"
        )
    return _Task(method, signature, method.select_outputs(signature))


def _run(servable: Servable, tasks: Sequence[_Task], examples: Sequence[bytes], context: RequestContext) -> list[Any]:
    """Run all tasks at once and return one result per task."""
    if not examples:
        raise invalid_argument("Input is empty.")
    fetches = list(dict.fromkeys(task.signature.outputs[alias].name for task in tasks for alias in task.outputs))
    charged = claims.take_examples(context, servable, examples, fetches)
    batch = np.empty(len(examples), object)
    batch[:] = list(examples)
    feeds = {task.signature.inputs[INPUTS].name: Tensor(batch, dtypes.STRING) for task in tasks}
    api = tasks[0].method.api if len(tasks) == 1 else None
    outputs = dict(zip(fetches, run(servable, feeds, fetches, context, api=api, charged=charged), strict=True))
    return [
        method.read_outputs({alias: outputs[signature.outputs[alias].name] for alias in aliases}, len(examples))
        for method, signature, aliases in tasks
    ]


def _select_classify_outputs(signature: Any) -> list[str]:
    """Outputs `classes`, `scores` or both."""
    if len(signature.inputs) != 1:
        raise invalid_argument("Expected one input Tensor.")
    if len(signature.outputs) not in (1, 2):
        raise invalid_argument(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    if INPUTS not in signature.inputs:
        raise invalid_argument(f"No classification inputs found in SignatureDef: {_as_text(signature)}")
    aliases = [alias for alias in ("classes", "scores") if alias in signature.outputs]
    if not aliases:
        raise invalid_argument(
            'Expected classification signature outputs to contain at least one of "classes" or "scores". '
            f"Signature was: {_as_text(signature)}"
        )
    return aliases


def _read_classifications(outputs: Mapping[str, Tensor], count: int) -> Classifications:
    """Each output is [examples, classes]."""
    for alias, dtype_name in (("classes", "string"), ("scores", "float")):
        if alias not in outputs:
            continue
        tensor = outputs[alias]
        if tensor.array.ndim != 2:
            raise invalid_argument(f"Expected Tensor shape: [batch_size num_classes] but got {_shape(tensor)}")
        if tensor.dtype.name != dtype_name:
            raise invalid_argument(f"Expected {alias} Tensor of DT_{dtype_name.upper()}. Got: {tensor.dtype.enum_name}")
        if len(tensor.array) != count:
            raise invalid_argument(f"Expected {alias} output batch size of {count}. Got: {len(tensor.array)}")
    classes, scores = (outputs[alias].array if alias in outputs else None for alias in ("classes", "scores"))
    if classes is not None and scores is not None and classes.shape[1] != scores.shape[1]:
        raise invalid_argument(
            f"Tensors class and score should match in dim_size(1). Got {classes.shape[1]} vs. {scores.shape[1]}"
        )
    return Classifications(classes, scores)


def _select_regress_outputs(signature: Any) -> list[str]:
    """Output `outputs`."""
    for tensors, message in (
        (signature.inputs, "Expected one input Tensor."),
        (signature.outputs, "Expected one output Tensor."),
    ):
        if len(tensors) != 1:
            raise invalid_argument(message)
    for field, alias, tensors in (("inputs", INPUTS, signature.inputs), ("outputs", "outputs", signature.outputs)):
        if alias not in tensors:
            raise invalid_argument(f"No regression {field} found in SignatureDef: {_as_text(signature)}")
    return ["outputs"]


def _read_regressions(outputs: Mapping[str, Tensor], count: int) -> np.ndarray:
    """The output is [examples] or [examples, 1]."""
    tensor = outputs["outputs"]
    if tensor.array.ndim != 1 and tensor.array.shape[1:] != (1,):
        raise invalid_argument(
            f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got {_shape(tensor)}"
        )
    if len(tensor.array) != count:
        raise invalid_argument(f"Input batch size did not match output batch size: {count} vs. {len(tensor.array)}")
    if tensor.dtype.name != "float":
        raise invalid_argument(f"Expected output Tensor of DT_FLOAT.  Got: {tensor.dtype.enum_name}")
    return tensor.array.reshape(count)


def _shape(tensor: Tensor) -> str:
    return "[" + ",".join(map(str, tensor.array.shape)) + "]"


def _as_text(signature: Any) -> str:
    return text_format.MessageToString(signature)


_CLASSIFY = _Method(
    "tensorflow/serving/classify", "classification", "Classify", _select_classify_outputs, _read_classifications
)
_REGRESS = _Method("tensorflow/serving/regress", "regression", "Regress", _select_regress_outputs, _read_regressions)
_METHODS = {method.name: method for method in (_CLASSIFY, _REGRESS)}
