"""Tasks with labels: one of several, or of two, for which a single output of the network is enough, or any number."""

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
from savedmodel_bakery.exporter.tensor_types import ClassIds, NetworkOutputs, Scores, Tensor

_ROUNDING = 1e-6  # of 1 minus a probability


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

        best = self.best_signatures()
        return {
            "top_k": best["top_k"],
            "serving_default": Signature("images", {"output_0": Column((), b"")}, compute, rejects_bad_images=True),
            "classify": best["classify"],
            "pixels": replace(best["top_k"], takes="pixels"),
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
        return outputs if are_probabilities else softmax(outputs)


@dataclass(frozen=True)
class Binary(Classify):
    """See `Task`. The answers are those of `Classify`, but the threshold decides which label is the best."""

    name: ClassVar[str] = "binary"
    _probabilities_advice: ClassVar[str] = "--outputs probabilities"
    threshold: float  # from this probability on, the second label is the best; 0..1

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
        """See `Labelled.compare_best`. Compared by class only: near the threshold, either label may be the best."""
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


@dataclass(frozen=True)
class Multilabel(Labelled):
    """See `Task`."""

    name: ClassVar[str] = "multilabel"
    thresholds: tuple[float, ...]  # per label, the probability from which on an image has it; 0..1

    def signatures(self) -> Mapping[str, Signature]:
        """See `Task.signatures`."""
        labels = len(self.class_names)
        columns: Mapping[str, Column] = {
            "labels": Column((labels,), b""),
            "scores": Column((labels,), np.float32(0)),
            "count": Column((), np.int32(0)),
        }
        tags = Signature("images", columns, self._compute_tags)
        return {
            "serving_default": tags,
            **self.best_signatures(),
            "pixels": replace(tags, takes="pixels"),
        }

    def compare(self, answers: Answers, result: NetworkResult, tolerance: Tolerance) -> Comparison:
        """See `Task.compare`. A label that is missing or too many differs by the distance from its threshold."""
        expected, thresholds = self.expected_scores(result.outputs["vector"]), np.array(self.thresholds, np.float32)
        best = self.compare_best(answers, expected, tolerance) if "top_k" in answers else None
        labels = _read_tags(answers)
        tags = dict(zip(labels, answers["serving_default"]["scores"][: len(labels)], strict=True))
        has_tag = np.array([name in tags for name in self.class_names])
        scores = np.array([tags.get(name, 0.0) for name in self.class_names], np.float32)
        is_expected = expected >= thresholds
        differences = np.where(has_tag, np.abs(scores - expected), 0.0)
        differences = np.where(has_tag == is_expected, differences, np.abs(expected - thresholds))
        return Comparison(
            max(best.difference if best else 0.0, float(differences.max())),
            (best is None or best.is_within) and tolerance.allows(differences, expected),
            _describe(labels),
            _describe([self.class_names[class_id] for class_id in np.argsort(-expected) if is_expected[class_id]]),
            doubts=self.doubts(result.outputs["vector"]),
        )

    def has_same_labels(self, answers: Answers, expected: np.ndarray) -> bool:
        """See `Labelled.has_same_labels`; all labels that the image has count."""
        is_expected = expected >= np.array(self.thresholds, np.float32)
        return set(_read_tags(answers)) == {
            name for name, has in zip(self.class_names, is_expected, strict=True) if has
        }

    def _compute_tags(self, outputs: NetworkOutputs, _sizes: Tensor) -> Sequence[Tensor]:
        """Return the labels that an image has, best first, their scores and their number."""
        scores = self.scores(outputs["vector"])
        # Below all others, so that those that the image has come first.
        best = tf.math.top_k(tf.where(scores >= tf.constant(self.thresholds), scores, -1.0), len(self.class_names))
        has_label = best.values >= 0
        return (
            tf.where(has_label, self.names(best.indices), ""),
            tf.where(has_label, best.values, 0.0),
            tf.math.count_nonzero(has_label, axis=1, dtype=tf.int32),
        )


def _read_tags(answers: Answers) -> list[str]:
    """Return the labels that an image has, best first."""
    default = answers["serving_default"]
    return [label.decode() for label in default["labels"][: int(default["count"])]]


def _describe(labels: Sequence[str]) -> str:
    return ", ".join(labels) or "no label"
