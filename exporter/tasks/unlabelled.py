"""The tasks without labels: a vector per image, for comparing images; one number or several; and all outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.tasks.task import (
    Answers,
    Column,
    Comparison,
    Doubt,
    NetworkResult,
    Signature,
    Task,
    Tolerance,
)
from savedmodel_bakery.exporter.tensor_types import NetworkOutputs, Tensor

_SHOWN = 3


@dataclass(frozen=True)
class Embed(Task):
    """See `Task`. A vector of `size` values, which `normalise` divides by its length (`l2`) or not (`none`)."""

    name: ClassVar[str] = "embed"
    measure: ClassVar[str] = "cosine distance"
    tolerance: ClassVar[Tolerance] = Tolerance(atol=0.001)
    common: ClassVar[str] = "embeddings within a cosine distance of 0.01"
    approximation: ClassVar[Tolerance] = Tolerance(atol=0.01)
    size: int
    normalise: str
    ends_in_sigmoid: bool = False

    def signatures(self) -> Mapping[str, Signature]:
        """See `Task.signatures`."""
        answer = Signature("images", {"embedding": Column((self.size,), np.float32(0))}, self._compute)
        return {"serving_default": answer, "pixels": replace(answer, takes="pixels")}

    def compare(self, answers: Answers, result: NetworkResult, tolerance: Tolerance) -> Comparison:
        """See `Task.compare`. A difference in length counts like that of the ends of vectors at a cosine distance."""
        vector = answers["serving_default"]["embedding"].astype(np.float64)
        expected = result.outputs["vector"].astype(np.float64)
        length, expected_length = np.linalg.norm(vector), np.linalg.norm(expected)
        if self.normalise == "l2" and expected_length:
            expected, expected_length = expected / expected_length, np.float64(1)
        distance = 0.0 if length == expected_length else 1.0
        if length and expected_length:
            angle = 1 - float(vector @ expected) / float(length * expected_length)
            distance = max(angle, float(length / expected_length - 1) ** 2 / 2, 0.0)
        is_within = distance <= tolerance.atol + tolerance.rtol
        doubts = self._doubts(result.outputs["vector"])
        return Comparison(distance, is_within, _describe(vector), _describe(expected), doubts=doubts)

    def _doubts(self, vector: np.ndarray) -> tuple[Doubt, ...]:
        """Return a doubt about the scores of a classifier, which say little about other images."""
        total = float(vector.sum())
        if len(vector) > 1 and vector.min() >= 0 and np.isclose(total, 1, atol=1e-3):
            last, values = "softmax", f"they add up to {total:.6g}"
        elif self.ends_in_sigmoid:
            last, values = "sigmoid", f"from {vector.min():.3g} to {vector.max():.3g}"
        else:
            return ()
        reason = f"the values of the vector look like the output of a classifier's {last}"
        return (Doubt(reason, values, "for the layer before it pass --layer NAME, or --source-output of a SavedModel"),)

    def _compute(self, outputs: NetworkOutputs, _sizes: Tensor) -> Sequence[Tensor]:
        vectors = outputs["vector"]
        if self.normalise == "l2":
            # tf.math.l2_normalize shortens small vectors: their squares are below its epsilon.
            vectors = tf.math.divide_no_nan(vectors, tf.reduce_max(tf.abs(vectors), axis=1, keepdims=True))
            vectors = tf.math.divide_no_nan(vectors, tf.norm(vectors, axis=1, keepdims=True))
        return [vectors]


def _describe(vector: np.ndarray) -> str:
    values = ", ".join(f"{value:.4g}" for value in vector[:_SHOWN])
    return f"[{values}{', …' if len(vector) > _SHOWN else ''}]"


@dataclass(frozen=True)
class Regress(Task):
    """See `Task`. A number per output of the network, by name."""

    name: ClassVar[str] = "regress"
    measure: ClassVar[str] = "difference"
    tolerance: ClassVar[Tolerance] = Tolerance(atol=1e-4, rtol=0.01)
    common: ClassVar[str] = "numbers within 5 % and 0.01"
    approximation: ClassVar[Tolerance] = Tolerance(atol=0.01, rtol=0.05)
    names: tuple[str, ...]

    def signatures(self) -> Mapping[str, Signature]:
        """See `Task.signatures`."""
        columns = {name: Column((), np.float32(0)) for name in self.names}

        def compute(outputs: NetworkOutputs, _sizes: Tensor) -> Sequence[Tensor]:
            return list(tf.unstack(outputs["vector"], axis=1))

        signatures = {
            "serving_default": Signature("images", columns, compute),
            "pixels": Signature("pixels", columns, compute),
        }
        if len(self.names) == 1:
            value = {"outputs": Column((), np.float32(0))}
            signatures["regress"] = Signature("examples", value, compute, rejects_bad_images=True)
        return signatures

    def compare(self, answers: Answers, result: NetworkResult, tolerance: Tolerance) -> Comparison:
        """See `Task.compare`."""
        values = np.array([answers["serving_default"][name] for name in self.names], np.float64)
        expected = result.outputs["vector"]
        differences = np.abs(values - expected)
        is_within = tolerance.allows(differences, expected)
        return Comparison(float(differences.max()), is_within, self._describe(values), self._describe(expected))

    def _describe(self, values: np.ndarray) -> str:
        return ", ".join(f"{name} {value:.6g}" for name, value in zip(self.names, values, strict=True))


@dataclass(frozen=True)
class Tensors(Task):
    """See `Task`. The outputs of the network by name, each with its shape per image and its dtype."""

    name: ClassVar[str] = "tensors"
    measure: ClassVar[str] = "difference, as a part of the largest value, or share of different whole numbers"
    tolerance: ClassVar[Tolerance] = Tolerance(atol=1e-4, rtol=0.01, share=0.99)
    common: ClassVar[str] = "tensors within 5 % of their largest value"
    approximation: ClassVar[Tolerance] = Tolerance(atol=1e-4, rtol=0.05)
    outputs: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]

    def signatures(self) -> Mapping[str, Signature]:
        """See `Task.signatures`."""
        columns = {name: Column(shape, np.dtype(dtype).type(0)) for name, (shape, dtype) in self.outputs.items()}

        def compute(outputs: NetworkOutputs, _sizes: Tensor) -> Sequence[Tensor]:
            return [outputs[name] for name in self.outputs]

        answer = Signature("images", columns, compute)
        return {"serving_default": answer, "pixels": replace(answer, takes="pixels")}

    def compare(self, answers: Answers, result: NetworkResult, tolerance: Tolerance) -> Comparison:
        """See `Task.compare`. Of whole numbers, a share must be equal.

        Others are compared beside the largest value of their output, as some may be close to 0.
        """
        arrays = {name: answers["serving_default"][name].astype(np.float64) for name in self.outputs}
        largest, is_within = 0.0, True
        for name, array in arrays.items():
            expected = result.outputs[name].astype(np.float64)
            if not np.issubdtype(self.outputs[name][1], np.floating):
                difference = float(np.mean(array != expected)) if array.size else 0.0
                is_within &= tolerance.allows_share(difference)
            else:
                difference, scale = (float(np.abs(each).max(initial=0)) for each in (array - expected, expected))
                is_within &= tolerance.allows(np.float64(difference), np.float64(scale))
                difference /= max(scale, 1e-9)
            largest = max(largest, difference)
        return Comparison(largest, is_within, _describe_all(arrays), _describe_all(result.outputs))


def _describe_all(outputs: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"{name} {_describe(array.reshape(-1))}" for name, array in outputs.items())
