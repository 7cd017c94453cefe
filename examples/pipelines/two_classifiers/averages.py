"""The last step of the pipeline in two_classifiers.toml."""

from __future__ import annotations

import tensorflow as tf


def average(
    labels: tf.Tensor, class_ids: tf.Tensor, scores: tf.Tensor, other_class_ids: tf.Tensor, other_scores: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Average the scores of two classifiers, for the classes that the first one returns.

    Args:
        labels: string [n, k], the labels of the first classifier.
        class_ids: int32 [n, k], their class ids.
        scores: float32 [n, k], their scores.
        other_class_ids: int32 [n, m], the class ids of the second classifier.
        other_scores: float32 [n, m], their scores.

    Returns:
        `labels`, `class_ids` and `scores`, [n, k], best first.
    """
    is_same = class_ids[:, :, tf.newaxis] == other_class_ids[:, tf.newaxis]
    of_other = tf.reduce_sum(tf.where(is_same, other_scores[:, tf.newaxis], 0.0), axis=2)
    mean = (scores + of_other) / 2
    order = tf.argsort(mean, direction="DESCENDING", stable=True)
    answers = {"labels": labels, "class_ids": class_ids, "scores": mean}
    return {alias: tf.gather(values, order, batch_dims=1) for alias, values in answers.items()}
