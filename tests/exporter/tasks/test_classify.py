"""The tasks with one label of two, and with any number: in the graph, and compared with the outputs of the network."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.tasks.classify import Binary, Classify, Multilabel
from savedmodel_bakery.exporter.tasks.labelled import Labelled
from savedmodel_bakery.exporter.tasks.task import Answers, NetworkResult, Tolerance

NAMES = ("cat", "dog")
LOGITS = np.array([[-3.0], [0.0], [1.5]], np.float32)
POSITIVE = np.array([0.04742587, 0.5, 0.81757448])


@pytest.mark.parametrize("outputs", ["logits", "probabilities"])
def test_the_graph_and_the_reference_return_both_scores(outputs: str) -> None:
    task = Binary(NAMES, outputs, 5, 0.5)
    values = LOGITS if outputs == "logits" else POSITIVE[:, np.newaxis].astype(np.float32)
    expected = np.stack([1 - POSITIVE, POSITIVE], axis=1)
    np.testing.assert_allclose(task.scores(tf.constant(values)).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose([task.expected_scores(row) for row in values], expected, rtol=1e-6)


@pytest.mark.parametrize(("threshold", "ids"), [(0.5, [0, 1, 1]), (0.6, [0, 0, 1]), (1.0, [0, 0, 0]), (0.0, [1, 1, 1])])
@pytest.mark.parametrize("k", [1, 5])
def test_the_threshold_decides_which_label_is_the_best(threshold: float, ids: list[int], k: int) -> None:
    """In every signature, whichever probability is higher."""
    task = Binary(NAMES, "logits", k, threshold)
    values = tf.constant(LOGITS)
    labels, scores, class_ids = (
        column.numpy() for column in task.signatures()["top_k"].compute({"vector": values}, tf.constant(0))
    )
    assert ids == class_ids[:, 0].tolist()
    expected = np.stack([1 - POSITIVE, POSITIVE], axis=1)
    np.testing.assert_allclose(np.take_along_axis(expected, class_ids, 1), scores, rtol=1e-6)
    (default,) = task.signatures()["serving_default"].compute({"vector": values}, tf.constant(0))
    assert [NAMES[class_id].encode() for class_id in ids] == default.numpy().tolist() == labels[:, 0].tolist()
    for row, vector in enumerate(LOGITS):
        answers = {
            "top_k": {"labels": labels[row], "scores": scores[row], "class_ids": class_ids[row]},
            "serving_default": {"output_0": default.numpy()[row]},
        }
        comparison = task.compare(answers, NetworkResult({"vector": vector}, (1, 1)), Tolerance(atol=1e-6))
        assert comparison.is_within
        assert comparison.answer == comparison.expected


def answers_of(class_ids: list[int], positive: float) -> Answers:
    scores = np.float32([1 - positive, positive])[class_ids]
    labels = np.array([NAMES[class_id].encode() for class_id in class_ids], object)
    return {"top_k": {"labels": labels, "scores": scores, "class_ids": np.int32(class_ids)}}


def test_near_the_threshold_either_label_may_be_the_best() -> None:
    """The probability of the second label is 0.6 in the graph, and a little less in the reference."""
    task = Binary(NAMES, "probabilities", 5, 0.6)
    result = NetworkResult({"vector": np.float32([0.5999])}, (1, 1))
    comparison = task.compare(answers_of([1, 0], 0.6), result, Tolerance(atol=0.01))
    assert (True, "dog 0.6000", "cat 0.4001") == (comparison.is_within, comparison.answer, comparison.expected)
    assert not task.compare(answers_of([1, 0], 0.62), result, Tolerance(atol=0.01)).is_within


def test_an_order_that_is_not_that_of_the_threshold_is_noticed() -> None:
    task = Binary(NAMES, "probabilities", 5, 0.8)
    message = "the SavedModel's best label is dog, but the probability of dog is 0.7000, and the threshold 0.8"
    with pytest.raises(VerificationError, match=message):
        task.compare(
            answers_of([1, 0], 0.7), NetworkResult({"vector": np.float32([0.7])}, (1, 1)), Tolerance(atol=0.01)
        )


def test_logits_declared_as_probabilities_are_noticed() -> None:
    with pytest.raises(VerificationError, match="the network returns -3 for a photo; bake with --outputs logits"):
        Binary(NAMES, "probabilities", 5, 0.5).expected_scores(LOGITS[0])


TAG_NAMES = ("sea", "sky", "dog")
TASK = Multilabel(TAG_NAMES, "probabilities", 2, (0.5, 0.9, 0.2))
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


def tags_of(task: Multilabel, outputs: np.ndarray) -> list[Answers]:
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
    first, none, all_of_them = (answers["serving_default"] for answers in tags_of(TASK, OUTPUTS))
    assert [b"sea", b"dog", b""] == first["labels"].tolist()
    assert [0.6, 0.3, 0.0] == pytest.approx(first["scores"].tolist())
    assert ([b"", b"", b""], [0, 0, 0], 0) == (none["labels"].tolist(), none["scores"].tolist(), none["count"])
    assert ([b"sky", b"sea", b"dog"], 3) == (all_of_them["labels"].tolist(), all_of_them["count"])


def test_logits_have_sigmoids() -> None:
    task = Multilabel(TAG_NAMES, "logits", 3, (0.5, 0.5, 0.5))
    (answers,) = tags_of(task, np.array([[0.0, -1.0, 2.0]], np.float32))
    assert [b"dog", b"sea", b""] == answers["serving_default"]["labels"].tolist()
    assert [0.880797, 0.5, 0.268941] == pytest.approx(answers["top_k"]["scores"].tolist(), abs=1e-6)
    assert task.compare(answers, result([0.0, -1.0, 2.0]), task.tolerance).is_within


def test_right_answers_are_within_tolerance() -> None:
    for answers, outputs in zip(tags_of(TASK, OUTPUTS), OUTPUTS, strict=True):
        comparison = TASK.compare(answers, result(outputs), TASK.tolerance)
        assert (True, 0.0) == (comparison.is_within, comparison.difference)
    comparison = TASK.compare(tags_of(TASK, OUTPUTS)[0], result(OUTPUTS[0]), TASK.tolerance)
    assert ("sea, dog", "sea, dog") == (comparison.answer, comparison.expected)


@pytest.mark.parametrize(
    ("outputs", "difference"),
    [((0.6, 0.8, 0.35), 0.05), ((0.4, 0.8, 0.3), 0.2), ((0.6, 0.95, 0.3), 0.15)],
    ids=["another score", "a label too many", "a missing label"],
)
def test_wrong_answers_are_noticed(outputs: tuple[float, ...], difference: float) -> None:
    comparison = TASK.compare(tags_of(TASK, OUTPUTS)[0], result(outputs), TASK.tolerance)
    assert (False, pytest.approx(difference, abs=1e-6)) == (comparison.is_within, comparison.difference)


def test_a_label_at_its_threshold_may_be_missing() -> None:
    """Rounding decides."""
    (answers,) = tags_of(TASK, np.array([[0.4999, 0.8, 0.3]], np.float32))
    assert TASK.compare(answers, result([0.5001, 0.8, 0.3]), TASK.tolerance).is_within


def test_tags_of_logits_declared_as_probabilities_are_noticed() -> None:
    with pytest.raises(VerificationError, match="the network returns 2 for a photo; bake with --outputs logits"):
        TASK.expected_scores(np.array([0.5, 2.0, 0.1], np.float32))
