"""Compares the outputs of a SavedModel with those of its network on the same pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from savedmodel_bakery.exporter.errors import VerificationError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tasks import Task, choose_task
from savedmodel_bakery.exporter.tensor_types import NetworkOutput, NormalisedBatch
from savedmodel_bakery.exporter.validation.report import Tolerance
from savedmodel_bakery.exporter.validation.requests import PhotoResponse

ROUNDING = Tolerance(atol=1e-5, rtol=1e-4)
"""Two runs of the same network differ in the order of additions; a wrong network differs by far more."""


@dataclass(frozen=True)
class Agreement:
    """How the SavedModel's scores compare with the network's.

    Attributes:
        photos: number of photos compared.
        max_difference: the largest difference of a score, 0..1.
    """

    photos: int
    max_difference: float

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.photos + other.photos, max(self.max_difference, other.max_difference))


def probabilities(
    network: Callable[[NormalisedBatch], NetworkOutput],
    recipe: Recipe,
    class_names: Sequence[str],
    normalised: np.ndarray,
) -> tuple[Task, np.ndarray]:
    """Run the network on `normalised` float32 [batch, height, width, channels].

    Returns:
        The task, and the probability of every label: float32 [batch, labels].

    Raises:
        VerificationError: the outputs are not finite, or contradict the recipe's `outputs`.
    """
    import tensorflow as tf

    outputs = np.asarray(tf.reshape(tf.cast(network(tf.constant(normalised)), tf.float32), [len(normalised), -1]))
    if not np.isfinite(outputs).all():
        raise VerificationError("the network returns values that are not finite (NaN or infinity) for a photo")
    task = choose_task(recipe.answers, outputs.shape[1], class_names)
    return task, task.expected_scores(outputs)


def check_agreement(
    responses: Sequence[PhotoResponse],
    default_labels: Sequence[str],
    network: Callable[[NormalisedBatch], NetworkOutput],
    recipe: Recipe,
    class_names: Sequence[str],
    tolerance: Tolerance = ROUNDING,
) -> Agreement:
    """Compare the SavedModel's responses to photos with the outputs of `network` for the same pixels.

    Args:
        responses: responses of `top_k` and `preprocess` to photos that could be read.
        default_labels: the labels that `serving_default` returned.
        network: the source's own, without optimisation: from float32 [batch, height, width, channels], normalised, to
            [batch, classes].
        recipe: the recipe that was baked.
        class_names: in the order of class ids.
        tolerance: how far scores may differ.

    Raises:
        VerificationError: the responses differ; the message names the photo.
    """
    from savedmodel_bakery.exporter.image.pixels import normalise

    precision = recipe.optimisation.precision
    if precision != "float32":
        advice = f"; allow more with --parity-atol, or bake with --precision float32 instead of {precision}"
    else:
        advice = "; --optimise none bakes the network unchanged" if recipe.optimisation.steps else ""
    differences = []
    for response, default_label in zip(responses, default_labels, strict=True):
        normalised = np.asarray(normalise(response.pixels[np.newaxis], recipe.preprocessing))
        task, (expected,) = probabilities(network, recipe, class_names, normalised)
        differences.append(_max_difference(response, expected, tolerance, advice=advice))
        labels = [class_names[class_id] for class_id in response.class_ids]
        default_id = task.expected_default_id(response.class_ids, response.scores)
        if labels != response.labels or class_names[default_id] != default_label:
            raise VerificationError(f"on {response.photo.name} the SavedModel's labels do not match its class ids")
    return Agreement(len(responses), max(differences))


def _max_difference(response: PhotoResponse, expected: np.ndarray, tolerance: Tolerance, *, advice: str) -> float:
    best = -np.sort(-expected)[: len(response.scores)]
    for scores in (best, expected[response.class_ids]):
        if not np.allclose(scores, response.scores, rtol=tolerance.rtol, atol=tolerance.atol):
            raise VerificationError(
                f"on {response.photo.name} the SavedModel's scores are {response.scores.tolist()}, the network's "
                f"{scores.tolist()}; they may differ by {tolerance.atol} + {tolerance.rtol} of the score{advice}"
            )
    return float(np.abs(best - response.scores).max())
