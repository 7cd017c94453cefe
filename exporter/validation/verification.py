"""Verification: the SavedModel must answer as the network itself does on the same pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from savedmodel_bakery.exporter.errors import VerificationError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.validation.requests import PhotoAnswer
from savedmodel_bakery.exporter.validation.tolerance import Tolerance

ROUNDING = Tolerance(atol=1e-5, rtol=1e-4)
"""Two runs of the same network differ in the order of additions; a wrong one differs by far more."""


@dataclass(frozen=True)
class Agreement:
    """How the SavedModel's answers compare with the network's.

    Attributes:
        photos: how many were compared.
        max_difference: the largest difference of a score, 0..1.
    """

    photos: int
    max_difference: float

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.photos + other.photos, max(self.max_difference, other.max_difference))


def probabilities(network: Callable[[Any], Any], recipe: Recipe, normalised: np.ndarray) -> np.ndarray:
    """What the network itself says of `normalised` float32 [batch, height, width, channels]: float32 [batch, classes].

    Raises:
        VerificationError: its outputs are not what the recipe says they are.
    """
    import tensorflow as tf

    given = tf.reshape(tf.cast(network(tf.constant(normalised)), tf.float32), [len(normalised), -1])
    if not bool(tf.reduce_all(tf.math.is_finite(given))):
        raise VerificationError("the network gives values that are not finite (NaN or infinity) for a photo")
    sums = np.asarray(tf.reduce_sum(given, axis=1))
    are_probabilities = bool(tf.reduce_all(given >= 0)) and np.allclose(sums, 1, atol=1e-3)
    if are_probabilities != (recipe.source.outputs == "probabilities"):
        other = "probabilities" if are_probabilities else "logits"
        raise VerificationError(
            f"outputs is {recipe.source.outputs}, but for a photo the network's add up to {sums.tolist()}, from "
            f"{float(tf.reduce_min(given)):.3g} up: they look like {other}; bake with --outputs {other}"
        )
    return np.asarray(given if are_probabilities else tf.nn.softmax(given))


def verify(
    answers: Sequence[PhotoAnswer],
    defaults: Sequence[str],
    network: Callable[[Any], Any],
    recipe: Recipe,
    names: Sequence[str],
    tolerance: Tolerance = ROUNDING,
) -> Agreement:
    """Compare what the SavedModel said of photos with what `network` says of the same pixels.

    The network is the source's own, which no optimisation has touched.

    Args:
        answers: what `top_k` and `preprocess` said, of photos that could be read.
        defaults: the labels that `serving_default` gave.
        network: from float32 [batch, height, width, channels], normalised, to [batch, classes].
        recipe: the recipe that was baked.
        names: class names in the order of class ids.
        tolerance: how far scores may be apart.

    Raises:
        VerificationError: the answers differ; the message says on which photo.
    """
    from savedmodel_bakery.exporter.image.pixels import normalise

    if recipe.optimisation.precision != "float32":
        advice = (
            f"; allow more with --parity-atol, or bake with --precision float32, not {recipe.optimisation.precision}"
        )
    else:
        advice = "; --optimise none bakes the network as it is" if recipe.optimisation.steps else ""
    differences = []
    for answer, default in zip(answers, defaults, strict=True):
        normalised = np.asarray(normalise(answer.pixels[np.newaxis], recipe.preprocessing))
        (expected,) = probabilities(network, recipe, normalised)
        differences.append(_compare(answer, expected, tolerance, advice=advice))
        labels = [names[class_id] for class_id in answer.class_ids]
        if labels != answer.labels or labels[0] != default:
            raise VerificationError(f"on {answer.photo.name} the SavedModel's labels are not those of its class ids")
    return Agreement(len(answers), max(differences))


def _compare(answer: PhotoAnswer, expected: np.ndarray, tolerance: Tolerance, *, advice: str) -> float:
    best = -np.sort(-expected)[: len(answer.scores)]
    for wanted in (best, expected[answer.class_ids]):
        if not np.allclose(wanted, answer.scores, rtol=tolerance.rtol, atol=tolerance.atol):
            raise VerificationError(
                f"on {answer.photo.name} the SavedModel's scores are {answer.scores.tolist()}, the network's "
                f"{wanted.tolist()}; allowed is a difference of {tolerance.atol} + {tolerance.rtol} of it{advice}"
            )
    return float(np.abs(best - answer.scores).max())
