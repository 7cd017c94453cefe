"""Task multilabel: the labels that an image has, in the graph and compared with the network's outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.tasks.classify import Binary, Classify
from savedmodel_bakery.exporter.tasks.labelled import Labelled
from savedmodel_bakery.exporter.tasks.multilabel import Multilabel
from savedmodel_bakery.exporter.tasks.task import Answers, NetworkResult

NAMES = ("sea", "sky", "dog")
TASK = Multilabel(NAMES, "probabilities", 2, (0.5, 0.9, 0.2))
OUTPUTS = np.array([[0.6, 0.8, 0.3], [0.1, 0.1, 0.1], [0.5, 0.95, 0.2]], np.float32)


@pytest.mark.parametrize(
    ("task", "advice"),
    [
        (Binary(("a", "b"), "logits", 2, 0.5), "--outputs probabilities"),
        (Multilabel(("a", "b"), "logits", 2, (0.5, 0.5)), "--outputs probabilities"),
        (Classify(("a", "b"), "logits", 2), "--task multilabel --outputs probabilities"),
    ],
    ids=["binary", "multilabel", "classify"],
)
def test_logits_from_0_to_1_are_doubtful(task: Labelled, advice: str) -> None:
    (doubt,) = task.doubts(np.array([0.9, 0.2], np.float32))
    assert ("from 0.2 to 0.9", f"if they are probabilities, bake with {advice}") == (doubt.values, doubt.advice)
    for outputs in ([1.1, 0.2], [-0.1, 0.2]):
        assert () == task.doubts(np.array(outputs, np.float32))
    assert () == dataclasses.replace(task, outputs="probabilities").doubts(np.array([0.9, 0.2], np.float32))


def result(outputs: Sequence[float] | np.ndarray) -> NetworkResult:
    return NetworkResult({"vector": np.array(outputs, np.float32)}, (1, 1))


def answers_of(task: Multilabel, outputs: np.ndarray) -> list[Answers]:
    """Compute the answers of both signatures in the graph, image by image."""
    arrays = {
        name: dict(
            zip(
                signature.columns,
                signature.compute({"vector": tf.constant(outputs)}, tf.ones([len(outputs), 2])),
                strict=True,
            )
        )
        for name, signature in task.signatures().items()
        if signature.takes == "images"
    }
    return [
        {name: {alias: tensor.numpy()[row] for alias, tensor in tensors.items()} for name, tensors in arrays.items()}
        for row in range(len(outputs))
    ]


def test_an_image_has_the_labels_whose_thresholds_it_reaches_best_first() -> None:
    first, none, all_of_them = (answers["serving_default"] for answers in answers_of(TASK, OUTPUTS))
    assert [b"sea", b"dog", b""] == first["labels"].tolist()
    assert [0.6, 0.3, 0.0] == pytest.approx(first["scores"].tolist())
    assert ([b"", b"", b""], [0, 0, 0], 0) == (none["labels"].tolist(), none["scores"].tolist(), none["count"])
    assert ([b"sky", b"sea", b"dog"], 3) == (all_of_them["labels"].tolist(), all_of_them["count"])


def test_logits_have_sigmoids() -> None:
    task = Multilabel(NAMES, "logits", 3, (0.5, 0.5, 0.5))
    (answers,) = answers_of(task, np.array([[0.0, -1.0, 2.0]], np.float32))
    assert [b"dog", b"sea", b""] == answers["serving_default"]["labels"].tolist()
    assert [0.880797, 0.5, 0.268941] == pytest.approx(answers["top_k"]["scores"].tolist(), abs=1e-6)
    assert task.compare(answers, result([0.0, -1.0, 2.0]), task.tolerance).is_within


def test_right_answers_are_within_tolerance() -> None:
    for answers, outputs in zip(answers_of(TASK, OUTPUTS), OUTPUTS, strict=True):
        comparison = TASK.compare(answers, result(outputs), TASK.tolerance)
        assert (True, 0.0) == (comparison.is_within, comparison.difference)
    comparison = TASK.compare(answers_of(TASK, OUTPUTS)[0], result(OUTPUTS[0]), TASK.tolerance)
    assert ("sea, dog", "sea, dog") == (comparison.answer, comparison.expected)


@pytest.mark.parametrize(
    ("outputs", "difference"),
    [((0.6, 0.8, 0.35), 0.05), ((0.4, 0.8, 0.3), 0.2), ((0.6, 0.95, 0.3), 0.15)],
    ids=["another score", "a label too many", "a missing label"],
)
def test_wrong_answers_are_noticed(outputs: tuple[float, ...], difference: float) -> None:
    comparison = TASK.compare(answers_of(TASK, OUTPUTS)[0], result(outputs), TASK.tolerance)
    assert (False, pytest.approx(difference, abs=1e-6)) == (comparison.is_within, comparison.difference)


def test_a_label_at_its_threshold_may_be_missing() -> None:
    """Rounding decides."""
    (answers,) = answers_of(TASK, np.array([[0.4999, 0.8, 0.3]], np.float32))
    assert TASK.compare(answers, result([0.5001, 0.8, 0.3]), TASK.tolerance).is_within


def test_logits_declared_as_probabilities_are_noticed() -> None:
    with pytest.raises(VerificationError, match="the network returns 2 for a photo; bake with --outputs logits"):
        TASK.expected_scores(np.array([0.5, 2.0, 0.1], np.float32))
