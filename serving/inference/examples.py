"""Classify, Regress and MultiInference: serialized tf.Examples in, one result an example out.

Each task is a signature and a method; `plan` says what to fetch, `read` what came of it, and one run serves all tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from google.protobuf import text_format

from savedmodel_bakery.serving.inference.predict import DEFAULT_SIGNATURE
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor

INPUTS = "inputs"


class Classifications(NamedTuple):
    """Labels and scores by example; either may be missing.

    Attributes:
        classes: bytes, object [examples, classes].
        scores: float32 [examples, classes].
    """

    classes: np.ndarray | None
    scores: np.ndarray | None


class Method(Protocol):
    """What is made of examples."""

    NAME: str
    """The method name that a signature for it has."""

    @staticmethod
    def plan(signature: Any) -> list[str]:
        """Aliases of the outputs that count.

        Raises:
            StatusError: INVALID_ARGUMENT where the signature is none for this method.
        """

    @staticmethod
    def read(outputs: Mapping[str, Tensor], examples: int) -> Any:
        """The result of so many examples.

        Raises:
            StatusError: INVALID_ARGUMENT where the outputs are malformed.
        """


class Classify:
    """Outputs `classes`, `scores` or both, each [examples, classes]."""

    NAME = "tensorflow/serving/classify"

    @staticmethod
    def plan(signature: Any) -> list[str]:
        """See Method."""
        _check_count(signature.inputs, "Expected one input Tensor.")
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

    @staticmethod
    def read(outputs: Mapping[str, Tensor], examples: int) -> Classifications:
        """See Method."""
        for alias, wanted in (("classes", "string"), ("scores", "float")):
            if alias not in outputs:
                continue
            tensor = outputs[alias]
            if tensor.array.ndim != 2:
                raise invalid_argument(f"Expected Tensor shape: [batch_size num_classes] but got {_shape(tensor)}")
            if tensor.dtype.name != wanted:
                raise invalid_argument(f"Expected {alias} Tensor of DT_{wanted.upper()}. Got: {tensor.dtype.enum_name}")
            if len(tensor.array) != examples:
                raise invalid_argument(f"Expected {alias} output batch size of {examples}. Got: {len(tensor.array)}")
        classes, scores = (outputs[alias].array if alias in outputs else None for alias in ("classes", "scores"))
        if classes is not None and scores is not None and classes.shape[1] != scores.shape[1]:
            raise invalid_argument(
                f"Tensors class and score should match in dim_size(1). Got {classes.shape[1]} vs. {scores.shape[1]}"
            )
        return Classifications(classes, scores)


class Regress:
    """Output `outputs`, [examples] or [examples, 1]."""

    NAME = "tensorflow/serving/regress"

    @staticmethod
    def plan(signature: Any) -> list[str]:
        """See Method."""
        _check_count(signature.inputs, "Expected one input Tensor.")
        _check_count(signature.outputs, "Expected one output Tensor.")
        for kind, alias, named in (("inputs", INPUTS, signature.inputs), ("outputs", "outputs", signature.outputs)):
            if alias not in named:
                raise invalid_argument(f"No regression {kind} found in SignatureDef: {_as_text(signature)}")
        return ["outputs"]

    @staticmethod
    def read(outputs: Mapping[str, Tensor], examples: int) -> np.ndarray:
        """See Method; float32 [examples]."""
        tensor = outputs["outputs"]
        if tensor.array.ndim != 1 and tensor.array.shape[1:] != (1,):
            raise invalid_argument(
                f"Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got {_shape(tensor)}"
            )
        if len(tensor.array) != examples:
            raise invalid_argument(
                f"Input batch size did not match output batch size: {examples} vs. {len(tensor.array)}"
            )
        if tensor.dtype.name != "float":
            raise invalid_argument(f"Expected output Tensor of DT_FLOAT.  Got: {tensor.dtype.enum_name}")
        return tensor.array.reshape(examples)


METHODS: dict[str, type[Method]] = {method.NAME: method for method in (Classify, Regress)}
_NOUNS = {Classify.NAME: "classification", Regress.NAME: "regression"}


class Task(NamedTuple):
    """One method on one signature."""

    signature: Any
    method: type[Method]


def find_signature(servable: Servable, name: str) -> Any:
    """The SignatureDef with this name; empty is the default's.

    Raises:
        StatusError: INVALID_ARGUMENT where there is none.
    """
    try:
        return servable.signatures[name or DEFAULT_SIGNATURE]
    except KeyError:
        raise invalid_argument(f"No signature was found with the name: {name or DEFAULT_SIGNATURE}") from None


def read_tasks(
    servable: Servable, messages: Sequence[Any], names: Sequence[str], *, check_method_names: bool = False
) -> list[Task]:
    """The tasks of a MultiInference request; each is checked whole before the next.

    Args:
        servable: the first task's.
        messages: InferenceTasks.
        names: of the models they name.
        check_method_names: as for `run`.

    Raises:
        StatusError: they are of several models, the same twice, or of an unknown signature or method, or one that
            doesn't fit.
    """
    tasks = []
    seen: set[str] = set()
    for message, model_name in zip(messages, names, strict=True):
        if not model_name:
            raise invalid_argument("Found ModelSpec with an empty model name.")
        if model_name != names[0]:
            raise invalid_argument("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
        name = message.model_spec.signature_name or DEFAULT_SIGNATURE
        if name in seen:
            raise invalid_argument(f"Duplicate evaluation of signature: {name}")
        seen.add(name)
        if name not in servable.signatures:
            raise invalid_argument(f"Requested signature not found in model graph: {name}")
        if message.method_name not in METHODS:
            raise StatusError(Code.UNIMPLEMENTED, f"Unsupported signature method_name: {message.method_name}")
        task = Task(servable.signatures[name], METHODS[message.method_name])
        _plan(task, check_method_names=check_method_names)  # which refuses what doesn't fit
        tasks.append(task)
    return tasks


def run(
    servable: Servable,
    tasks: Sequence[Task],
    examples: list[bytes],
    *,
    timeout_s: float | None,
    check_method_names: bool = False,
) -> list[Any]:
    """Run all tasks on a batch, at once.

    Args:
        servable: whose signatures the tasks name.
        tasks: one result each is given.
        examples: serialized tf.Examples.
        timeout_s: limit of the run; None is none.
        check_method_names: refuse a signature that was exported for another method.

    Raises:
        StatusError: a signature doesn't fit its method, or outputs are malformed; else what the runtime said.
    """
    fetches: dict[str, None] = {}
    plans = [_plan(task, check_method_names=check_method_names) for task in tasks]
    for task, plan in zip(tasks, plans, strict=True):
        fetches.update({task.signature.outputs[alias].name: None for alias in plan})
    if not examples:
        raise invalid_argument("Input is empty.")
    batch = np.empty(len(examples), object)
    batch[:] = examples
    feeds = {task.signature.inputs[INPUTS].name: Tensor(batch, dtypes.STRING) for task in tasks}
    api = tasks[0].method.__name__ if len(tasks) == 1 else None
    outputs = servable.run(feeds, list(fetches), api=api, timeout_s=timeout_s)
    fetched = dict(zip(fetches, outputs, strict=True))
    return [
        method.read({alias: fetched[signature.outputs[alias].name] for alias in plan}, len(examples))
        for (signature, method), plan in zip(tasks, plans, strict=True)
    ]


def _plan(task: Task, *, check_method_names: bool) -> list[str]:
    """Aliases of the outputs that count."""
    signature, method = task
    if check_method_names and signature.method_name != method.NAME:
        raise invalid_argument(
            f"Expected {_NOUNS[method.NAME]} signature method_name to be {method.NAME}. Was: {signature.method_name}"
        )
    return method.plan(signature)


def _check_count(tensors: Any, message: str) -> None:
    if len(tensors) != 1:
        raise invalid_argument(message)


def _shape(tensor: Tensor) -> str:
    return "[" + ",".join(map(str, tensor.array.shape)) + "]"


def _as_text(signature: Any) -> str:
    return text_format.MessageToString(signature)
