"""Task: one of several labels; the network has one output per label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from savedmodel_bakery.exporter.errors import VerificationError
from savedmodel_bakery.exporter.tensor_types import ClassIds, NetworkOutput, Scores


@dataclass(frozen=True)
class Classify:
    """See `Task`.

    Attributes:
        outputs: what the network returns: `probabilities` or `logits`.
    """

    name: ClassVar[str] = "classify"
    outputs: str

    def scores(self, outputs: NetworkOutput) -> Scores:
        """See `Task.scores`."""
        import tensorflow as tf

        return tf.nn.softmax(outputs) if self.outputs == "logits" else outputs

    def default_ids(self, scores: Scores) -> ClassIds:
        """Return the best class id of each image."""
        import tensorflow as tf

        return tf.math.top_k(scores, 1).indices[:, 0]

    def expected_scores(self, outputs: np.ndarray) -> np.ndarray:
        """See `Task.expected_scores`."""
        sums = outputs.sum(axis=1)
        are_probabilities = bool(np.all(outputs >= 0)) and np.allclose(sums, 1, atol=1e-3)
        if are_probabilities != (self.outputs == "probabilities"):
            actual = "probabilities" if are_probabilities else "logits"
            raise VerificationError(
                f"outputs is {self.outputs}, but the network's outputs for a photo look like {actual}: they add up to "
                f"{sums.tolist()}, and the smallest is {float(outputs.min()):.3g}; bake with --outputs {actual}"
            )
        if are_probabilities:
            return outputs
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def expected_default_id(self, class_ids: np.ndarray, scores: np.ndarray) -> int:  # noqa: ARG002 - not needed
        """Return the best class id."""
        return int(class_ids[0])
