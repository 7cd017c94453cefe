"""Compares the answers of a SavedModel with those of its network on the same pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from savedmodel_bakery.exporter.errors import VerificationError
from savedmodel_bakery.exporter.recipe import Preprocessing, Recipe
from savedmodel_bakery.exporter.tasks import Task, Tolerance
from savedmodel_bakery.exporter.tensor_types import NetworkOutput, NormalisedBatch
from savedmodel_bakery.exporter.validation.requests import PhotoResponse

ROUNDING = Tolerance(atol=1e-5, rtol=1e-4)
"""Two runs of the same network differ in the order of additions; a wrong network differs by far more."""


@dataclass(frozen=True)
class Agreement:
    """How the SavedModel's answers compare with the network's.

    Attributes:
        photos: number of photos compared.
        max_difference: the largest difference of an answer, in the measure of the task.
    """

    photos: int
    max_difference: float

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.photos + other.photos, max(self.max_difference, other.max_difference))


def run_network(network: Callable[[NormalisedBatch], NetworkOutput], normalised: np.ndarray) -> np.ndarray:
    """Run the network on one image, `normalised` float32 [height, width, channels].

    Returns:
        Its outputs: float32 [units]; those of maps are averaged over height and width.

    Raises:
        VerificationError: the outputs are not finite.
    """
    import tensorflow as tf

    (outputs,) = np.asarray(tf.cast(network(tf.constant(normalised[np.newaxis])), tf.float32))
    outputs = outputs.mean(axis=(0, 1)) if outputs.ndim == 3 else outputs.reshape(-1)
    if not np.isfinite(outputs).all():
        raise VerificationError("the network returns values that are not finite (NaN or infinity) for a photo")
    return np.asarray(outputs)


def count_outputs(network: Callable[[NormalisedBatch], NetworkOutput], preprocessing: Preprocessing) -> int:
    """Return the number of the network's outputs per image."""
    import tensorflow as tf

    channels = 1 if preprocessing.channels == "GRAY" else 3
    shape = network(tf.zeros([1, *preprocessing.size, channels])).shape
    return 1 if len(shape) == 1 else int(shape[-1])


def check_agreement(
    responses: Sequence[PhotoResponse],
    network: Callable[[NormalisedBatch], NetworkOutput],
    recipe: Recipe,
    task: Task,
    tolerance: Tolerance = ROUNDING,
) -> Agreement:
    """Compare the SavedModel's responses to photos with the outputs of `network` for the same pixels.

    Args:
        responses: to photos that could be read.
        network: the source's own, without optimisation.
        recipe: the recipe that was baked.
        task: of the recipe.
        tolerance: how far answers may differ.

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
    for response in responses:
        (normalised,) = np.asarray(normalise(response.pixels[np.newaxis], recipe.preprocessing))
        comparison = task.compare(response.answers, run_network(network, normalised), tolerance)
        if not comparison.is_within:
            raise VerificationError(
                f"on {response.photo.name} the SavedModel answers {comparison.answer}, the network "
                f"{comparison.expected}: {task.measure} {comparison.difference:.3g} (allowed: {tolerance}){advice}"
            )
        differences.append(comparison.difference)
    return Agreement(len(responses), max(differences))
