"""Task: a vector per image, for comparing images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from savedmodel_bakery.exporter.tasks.task import Answers, Column, Comparison, NetworkResult, Signature, Tolerance
from savedmodel_bakery.exporter.tensor_types import NetworkOutputs, Tensor

_SHOWN = 3


@dataclass(frozen=True)
class Embed:
    """See `Task`.

    Attributes:
        size: of the vector.
        normalise: `none`, or `l2` to divide a vector by its length.
    """

    name: ClassVar[str] = "embed"
    measure: ClassVar[str] = "cosine distance"
    tolerance: ClassVar[Tolerance] = Tolerance(atol=0.001)
    max_side: ClassVar[int | None] = None
    size: int
    normalise: str

    def signatures(self) -> Mapping[str, Signature]:
        """See `Task.signatures`."""
        return {"serving_default": self._signature("images"), "pixels": self._signature("pixels")}

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
        return Comparison(distance, is_within, _describe(vector), _describe(expected))

    def _signature(self, takes: Literal["images", "pixels"]) -> Signature:
        import tensorflow as tf

        def compute(outputs: NetworkOutputs, _sizes: Tensor) -> Sequence[Tensor]:
            return [tf.math.l2_normalize(outputs["vector"], axis=1) if self.normalise == "l2" else outputs["vector"]]

        return Signature(takes, {"embedding": Column((self.size,), np.float32(0))}, compute)


def _describe(vector: np.ndarray) -> str:
    values = ", ".join(f"{value:.4g}" for value in vector[:_SHOWN])
    return f"[{values}{', …' if len(vector) > _SHOWN else ''}]"
