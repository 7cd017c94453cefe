"""Task: one number per image, or several with names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.tasks.task import Answers, Column, Comparison, NetworkResult, Signature, Task, Tolerance
from savedmodel_bakery.exporter.tensor_types import NetworkOutputs, Tensor


@dataclass(frozen=True)
class Regress(Task):
    """See `Task`.

    Attributes:
        names: of the network's outputs.
    """

    name: ClassVar[str] = "regress"
    measure: ClassVar[str] = "difference"
    tolerance: ClassVar[Tolerance] = Tolerance(atol=1e-4, rtol=0.01)
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
