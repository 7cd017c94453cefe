"""Task: one of two labels; the network has a single output, for the second label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.tasks.classify import Classify
from savedmodel_bakery.exporter.tasks.labelled import Labelled
from savedmodel_bakery.exporter.tasks.task import Answers, Comparison, Tolerance
from savedmodel_bakery.exporter.tensor_types import ClassIds, Scores

_ROUNDING = 1e-6  # of 1 minus a probability


@dataclass(frozen=True)
class Binary(Classify):
    """See `Task`. The answers are those of `Classify`, but the threshold decides which label is the best.

    Attributes:
        threshold: from this probability on, the second label is the best; 0..1.
    """

    name: ClassVar[str] = "binary"
    _probabilities_advice: ClassVar[str] = "--outputs probabilities"
    threshold: float

    def scores(self, vectors: Scores) -> Scores:
        """See `Labelled.scores`."""
        positive = Labelled.scores(self, vectors)
        return tf.concat([1 - positive, positive], axis=1)

    def best(self, vectors: Scores) -> tuple[Scores, ClassIds]:
        """See `Labelled.best`."""
        scores = self.scores(vectors)
        best = tf.cast(scores[:, 1] >= self.threshold, tf.int32)
        class_ids = tf.stack([best, 1 - best], axis=1)[:, : self.k]
        return tf.gather(scores, class_ids, batch_dims=1), class_ids

    def expected_scores(self, outputs: np.ndarray) -> np.ndarray:
        """See `Labelled.expected_scores`."""
        positive = Labelled.expected_scores(self, outputs)
        return np.concatenate([1 - positive, positive])

    def compare_best(self, answers: Answers, expected: np.ndarray, tolerance: Tolerance) -> Comparison:
        """See `Labelled.compare_best`. Compared by class only: near the threshold, either label may be the best.

        Raises:
            VerificationError: the labels aren't those of the class ids, or their order isn't that of the threshold.
        """
        class_ids, scores = self.read_best(answers)
        positive = scores[0] if class_ids[0] == 1 else 1 - scores[0]
        if class_ids[0] != (positive >= self.threshold) and abs(positive - self.threshold) > _ROUNDING:
            raise VerificationError(
                f"the SavedModel's best label is {self.class_names[class_ids[0]]}, but the probability of "
                f"{self.class_names[1]} is {positive:.4f}, and the threshold {self.threshold:g}"
            )
        wanted = expected[class_ids]
        differences = np.abs(wanted - scores)
        best = int(expected[1] >= np.float32(self.threshold))
        return Comparison(
            float(differences.max()),
            tolerance.allows(differences, wanted),
            self.describe(class_ids[0], scores[0]),
            self.describe(best, expected[best]),
        )

    def has_same_labels(self, answers: Answers, expected: np.ndarray) -> bool:
        """See `Labelled.has_same_labels`."""
        return bool(answers["top_k"]["class_ids"][0] == (expected[1] >= np.float32(self.threshold)))
