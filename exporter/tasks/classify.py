"""Task: one of several labels; the network has one output per label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.tasks.labelled import Labelled
from savedmodel_bakery.exporter.tasks.task import (
    Answers,
    Column,
    Comparison,
    NetworkResult,
    Signature,
    Tolerance,
    softmax,
)
from savedmodel_bakery.exporter.tensor_types import NetworkOutputs, Scores, Tensor


@dataclass(frozen=True)
class Classify(Labelled):
    """See `Task`."""

    name: ClassVar[str] = "classify"
    # Those of task classify add up to 1, which is checked.
    _probabilities_advice: ClassVar[str] = "--task multilabel --outputs probabilities"

    def signatures(self) -> Mapping[str, Signature]:
        """See `Task.signatures`."""

        def compute(outputs: NetworkOutputs, _sizes: Tensor) -> Sequence[Tensor]:
            _, class_ids = self.best(outputs["vector"])
            return [self.names(class_ids[:, 0])]

        best = self.best_signature()
        return {
            "top_k": best,
            "serving_default": Signature("images", {"output_0": Column((), b"")}, compute, rejects_bad_images=True),
            "classify": self.classify_signature(),
            "pixels": replace(best, takes="pixels"),
        }

    def compare(self, answers: Answers, result: NetworkResult, tolerance: Tolerance) -> Comparison:
        """See `Task.compare`."""
        comparison = self.compare_best(answers, self.expected_scores(result.outputs["vector"]), tolerance)
        if "serving_default" in answers:
            default = answers["serving_default"]["output_0"]
            if default != answers["top_k"]["labels"][0]:
                raise VerificationError("the SavedModel's serving_default answers another label than its top_k")
        return comparison._replace(doubts=self.doubts(result.outputs["vector"]))

    def scores(self, vectors: Scores) -> Scores:
        """See `Labelled.scores`."""
        return tf.nn.softmax(vectors) if self.outputs == "logits" else vectors

    def expected_scores(self, outputs: np.ndarray) -> np.ndarray:
        """See `Labelled.expected_scores`."""
        total = float(outputs.sum())
        are_probabilities = bool(np.all(outputs >= 0)) and np.isclose(total, 1, atol=1e-3)
        if are_probabilities != (self.outputs == "probabilities"):
            actual = "probabilities" if are_probabilities else "logits"
            advice = ""
            if self.outputs == "probabilities" and np.all((outputs >= 0) & (outputs <= 1)):
                advice = ", or with --task multilabel if an image can have several labels"
            raise VerificationError(
                f"outputs is {self.outputs}, but the network's outputs for a photo look like {actual}: they add up to "
                f"{total:.6g}, and the smallest is {float(outputs.min()):.3g}; bake with --outputs {actual}{advice}"
            )
        if are_probabilities:
            return outputs
        return softmax(outputs)
