"""Task: any number of labels; the network has one output per label, each with a probability of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.tasks.labelled import Labelled
from savedmodel_bakery.exporter.tasks.task import Answers, Column, Comparison, NetworkResult, Signature, Tolerance
from savedmodel_bakery.exporter.tensor_types import NetworkOutputs, Tensor


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
        best = self.compare_best(answers, expected, tolerance)
        labels = _read_tags(answers)
        tags = dict(zip(labels, answers["serving_default"]["scores"][: len(labels)], strict=True))
        has_tag = np.array([name in tags for name in self.class_names])
        scores = np.array([tags.get(name, 0.0) for name in self.class_names], np.float32)
        is_expected = expected >= thresholds
        differences = np.where(has_tag, np.abs(scores - expected), 0.0)
        differences = np.where(has_tag == is_expected, differences, np.abs(expected - thresholds))
        return Comparison(
            max(best.difference, float(differences.max())),
            best.is_within and tolerance.allows(differences, expected),
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
