"""Task: one of two labels; the network has a single output, for the second label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from savedmodel_bakery.exporter.tasks.classify import Classify
from savedmodel_bakery.exporter.tensor_types import ClassIds, Scores


@dataclass(frozen=True)
class Binary(Classify):
    """See `Task`. The answers are those of `Classify`.

    Attributes:
        threshold: from this probability on, `serving_default` answers the second label; 0..1.
    """

    name: ClassVar[str] = "binary"
    threshold: float

    def scores(self, vectors: Scores) -> Scores:
        """See `Labelled.scores`."""
        import tensorflow as tf

        positive = tf.sigmoid(vectors) if self.outputs == "logits" else vectors
        return tf.concat([1 - positive, positive], axis=1)

    def default_ids(self, scores: Scores) -> ClassIds:
        """Return 1 where the probability of the second label reaches the threshold."""
        import tensorflow as tf

        return tf.cast(scores[:, 1] >= self.threshold, tf.int32)

    def expected_scores(self, outputs: np.ndarray) -> np.ndarray:
        """See `Labelled.expected_scores`."""
        positive = self.independent(outputs)
        return np.concatenate([1 - positive, positive])

    def expected_default_id(self, class_ids: np.ndarray, scores: np.ndarray) -> int:
        """Return 1 if the probability of the second label reaches the threshold."""
        positive = scores[0] if class_ids[0] == 1 else scores[1] if len(scores) > 1 else 1 - scores[0]
        return int(positive >= np.float32(self.threshold))
