"""Classify: serialized tf.Examples in, one list of labels and scores an example out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from google.protobuf import text_format

from serving.data_plane.predict import DEFAULT_SIGNATURE
from serving.servable import Servable, Tensor
from wire import dtypes
from wire.status import invalid_argument

_INPUTS, _CLASSES, _SCORES = "inputs", "classes", "scores"


class Classifications(NamedTuple):
    """Labels and scores by example; either may be missing.

    Attributes:
        classes: bytes, object [examples, classes].
        scores: float32 [examples, classes].
    """

    classes: np.ndarray | None
    scores: np.ndarray | None


def find_signature(servable: Servable, name: str) -> Any:
    """The SignatureDef with this name; empty is the default's.

    Raises:
        StatusError: INVALID_ARGUMENT where there is none.
    """
    try:
        return servable.signatures[name or DEFAULT_SIGNATURE]
    except KeyError:
        raise invalid_argument(f"No signature was found with the name: {name or DEFAULT_SIGNATURE}") from None


def run(servable: Servable, signature: Any, examples: list[bytes], timeout_s: float | None) -> Classifications:
    """Classify a batch.

    Raises:
        StatusError: INVALID_ARGUMENT where the signature is none that classifies or its outputs are malformed; else
            what the runtime said.
    """
    aliases = _check_signature(signature)
    if not examples:
        raise invalid_argument("Input is empty.")
    batch = np.empty(len(examples), object)
    batch[:] = examples
    feeds = {signature.inputs[_INPUTS].name: Tensor(batch, dtypes.STRING)}
    tensors = servable.run(feeds, [signature.outputs[alias].name for alias in aliases], timeout_s=timeout_s)
    outputs = dict(zip(aliases, tensors, strict=True))
    for alias, wanted in ((_CLASSES, "string"), (_SCORES, "float")):
        if alias in outputs:
            _check_output(alias, outputs[alias], wanted, len(examples))
    classes, scores = (outputs[alias].array if alias in outputs else None for alias in (_CLASSES, _SCORES))
    if classes is not None and scores is not None and classes.shape[1] != scores.shape[1]:
        raise invalid_argument(
            f"Tensors class and score should match in dim_size(1). Got {classes.shape[1]} vs. {scores.shape[1]}"
        )
    return Classifications(classes, scores)


def _check_signature(signature: Any) -> list[str]:
    """The outputs that count, of a signature that classifies."""
    if len(signature.inputs) != 1:
        raise invalid_argument("Expected one input Tensor.")
    if len(signature.outputs) not in (1, 2):
        raise invalid_argument(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    if _INPUTS not in signature.inputs:
        raise invalid_argument(f"No classification inputs found in SignatureDef: {_as_text(signature)}")
    aliases = [alias for alias in (_CLASSES, _SCORES) if alias in signature.outputs]
    if not aliases:
        raise invalid_argument(
            'Expected classification signature outputs to contain at least one of "classes" or "scores". '
            f"Signature was: {_as_text(signature)}"
        )
    return aliases


def _check_output(alias: str, tensor: Tensor, wanted: str, examples: int) -> None:
    shape = tensor.array.shape
    if len(shape) != 2:
        raise invalid_argument(f"Expected Tensor shape: [batch_size num_classes] but got [{','.join(map(str, shape))}]")
    if tensor.dtype.name != wanted:
        raise invalid_argument(f"Expected {alias} Tensor of DT_{wanted.upper()}. Got: {tensor.dtype.enum_name}")
    if shape[0] != examples:
        raise invalid_argument(f"Expected {alias} output batch size of {examples}. Got: {shape[0]}")


def _as_text(signature: Any) -> str:
    return text_format.MessageToString(signature)
