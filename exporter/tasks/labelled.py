"""What the tasks with labels have in common: probabilities of labels, and the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.tasks.task import (
    Answers,
    Change,
    Column,
    Comparison,
    Doubt,
    NetworkResult,
    Signature,
    Task,
    Tolerance,
    check_probabilities,
    doubt_logits,
    sigmoid,
)
from savedmodel_bakery.exporter.tensor_types import ClassIds, NetworkOutputs, Scores, Tensor, Texts


@dataclass(frozen=True)
class Labelled(Task):
    """See `Task`."""

    measure: ClassVar[str] = "score difference"
    tolerance: ClassVar[Tolerance] = Tolerance(atol=0.01)
    common: ClassVar[str] = "the same labels"
    change: ClassVar[str] = "probabilities change by"
    _probabilities_advice: ClassVar[str] = "--outputs probabilities"
    class_names: tuple[str, ...]  # in the order of class ids
    outputs: str  # what the network returns: `probabilities` or `logits`
    top_k: int  # the number of labels in an answer, or all if there are fewer

    def scores(self, vectors: Scores) -> Scores:
        """Return the probability of every label in the graph: float32 [images, labels]; here each on its own."""
        return tf.sigmoid(vectors) if self.outputs == "logits" else vectors

    def expected_scores(self, outputs: np.ndarray) -> np.ndarray:
        """Return the probability of every label: float32 [labels]; here each on its own.

        Raises:
            VerificationError: the outputs contradict the recipe's `outputs`.
        """
        if self.outputs == "logits":
            return sigmoid(outputs)
        check_probabilities(outputs)
        return outputs

    @property
    def k(self) -> int:
        """The number of labels in an answer."""
        return min(self.top_k, len(self.class_names))

    def best_signatures(self) -> dict[str, Signature]:
        """Return the signatures with the best labels: `top_k`, and `classify` for calls of Classify."""
        labels, scores = Column((self.k,), b""), Column((self.k,), np.float32(0))
        class_ids = Column((self.k,), np.int32(-1))

        def compute(outputs: NetworkOutputs, _sizes: Tensor) -> Sequence[Tensor]:
            scores, class_ids = self.best(outputs["vector"])
            return self.names(class_ids), scores, class_ids

        def compute_for_classify(outputs: NetworkOutputs, sizes: Tensor) -> Sequence[Tensor]:
            return compute(outputs, sizes)[:2]

        return {
            "top_k": Signature("images", {"labels": labels, "scores": scores, "class_ids": class_ids}, compute),
            "classify": Signature(
                "examples", {"classes": labels, "scores": scores}, compute_for_classify, rejects_bad_images=True
            ),
        }

    def doubts(self, outputs: np.ndarray) -> tuple[Doubt, ...]:
        """Return the doubts about what the recipe calls the outputs, [units]."""
        return doubt_logits(outputs, self._probabilities_advice) if self.outputs == "logits" else ()

    def names(self, class_ids: ClassIds) -> Texts:
        """Return the labels of class ids in the graph."""
        return tf.gather(tf.constant(self.class_names), class_ids)

    def best(self, vectors: Scores) -> tuple[Scores, ClassIds]:
        """Return the scores and class ids of the best labels in the graph, best first: [images, k]."""
        best = tf.math.top_k(self.scores(vectors), self.k)
        return best.values, best.indices

    def compare_best(self, answers: Answers, expected: np.ndarray, tolerance: Tolerance) -> Comparison:
        """Compare the best labels with the expected probability of every label, [labels].

        Compared by rank and by class, so that a class that only one of the two lists has counts too.
        """
        class_ids, scores = self.read_best(answers)
        by_rank = np.argsort(-expected, kind="stable")[: len(class_ids)]
        wanted = np.stack([expected[by_rank], expected[class_ids]])
        differences = np.abs(wanted - scores)
        return Comparison(
            float(differences.max()),
            tolerance.allows(differences, wanted),
            self.describe(class_ids[0], scores[0]),
            self.describe(by_rank[0], expected[by_rank[0]]),
        )

    def compare_approximation(self, answers: Answers, result: NetworkResult) -> Change:
        """See `Task.compare_approximation`. The answers agree if the best label is the same.

        The differences are those of the probabilities of the best labels of both. The probability of a label that is
        not in the answer counts as the lowest one in it, which it is at most.
        """
        expected = self.expected_scores(result.outputs["vector"])
        class_ids, scores = self.read_best(answers)
        missing = np.setdiff1d(np.argsort(-expected, kind="stable")[: len(class_ids)], class_ids)
        changes = [np.abs(expected[class_ids] - scores), np.maximum(expected[missing] - scores.min(), 0)]
        return Change(float(self.has_same_labels(answers, expected)), np.concatenate(changes))

    def has_same_labels(self, answers: Answers, expected: np.ndarray) -> bool:
        """Return whether the label of an answer is the one with the highest probability in `expected`, [labels]."""
        return bool(answers["top_k"]["class_ids"][0] == np.argmax(expected))

    def read_best(self, answers: Answers) -> tuple[np.ndarray, np.ndarray]:
        """Return the class ids and scores of the best labels, best first: [k]; check that the labels match the ids."""
        best = answers["top_k"]
        class_ids: np.ndarray = best["class_ids"]
        if [label.decode() for label in best["labels"]] != [self.class_names[class_id] for class_id in class_ids]:
            raise VerificationError("the SavedModel's labels do not match its class ids")
        return class_ids, best["scores"]

    def describe(self, class_id: int, score: float) -> str:
        """Return an answer in a few words."""
        return f"{self.class_names[class_id]} {score:.4f}"
