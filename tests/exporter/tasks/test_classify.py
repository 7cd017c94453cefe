"""Task binary: the scores of two labels from one output."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.tasks.classify import Binary
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
