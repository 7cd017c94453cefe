"""What a task decides; the rest of a servable is the same for every task."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np

from savedmodel_bakery.exporter.tensor_types import ClassIds, NetworkOutput, Scores


class Task(Protocol):
    """How the outputs of a network become scores of labels, once in the graph and once, independently, with NumPy.

    Attributes:
        name: as the recipe states it.
    """

    name: ClassVar[str]

    def scores(self, outputs: NetworkOutput) -> Scores:
        """Return the probability of every label in the graph: float32 [batch, labels]."""
        ...

    def default_ids(self, scores: Scores) -> ClassIds:
        """Return the class id that `serving_default` answers for each image, in the graph: int32 [batch]."""
        ...

    def expected_scores(self, outputs: np.ndarray) -> np.ndarray:
        """Return the probability of every label: float32 [batch, labels].

        Args:
            outputs: float32 [batch, units], finite.

        Raises:
            VerificationError: the outputs contradict the recipe's `outputs`.
        """
        ...

    def expected_default_id(self, class_ids: np.ndarray, scores: np.ndarray) -> int:
        """Return the class id that `serving_default` must answer for an image.

        Args:
            class_ids: int32 [k], best first.
            scores: float32 [k], of these.
        """
        ...
