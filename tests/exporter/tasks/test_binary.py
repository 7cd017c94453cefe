"""Task binary: the scores of two labels from one output."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.exporter.errors import VerificationError
from savedmodel_bakery.exporter.tasks.binary import Binary

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
def test_the_threshold_decides_between_the_labels(threshold: float, ids: list[int]) -> None:
    task = Binary(NAMES, "logits", 5, threshold)
    scores = task.scores(tf.constant(LOGITS))
    assert ids == task.default_ids(scores).numpy().tolist()
    for k in (1, 2):
        best = tf.math.top_k(scores, k)
        pairs = zip(best.indices.numpy(), best.values.numpy(), strict=True)
        assert ids == [task.expected_default_id(class_ids, values) for class_ids, values in pairs]


def test_logits_declared_as_probabilities_are_noticed() -> None:
    with pytest.raises(VerificationError, match="the network returns -3 for a photo; bake with --outputs logits"):
        Binary(NAMES, "probabilities", 5, 0.5).expected_scores(LOGITS[0])
