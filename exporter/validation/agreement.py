"""Compares the answers of a SavedModel with those of its network on the same pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from savedmodel_bakery.exporter.errors import VerificationError
from savedmodel_bakery.exporter.network_outputs import assign_roles
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tasks import NetworkResult, Task, Tolerance
from savedmodel_bakery.exporter.tensor_types import NetworkOutput, NormalisedBatch
from savedmodel_bakery.exporter.validation import reference
from savedmodel_bakery.exporter.validation.requests import PhotoResponse

ROUNDING = Tolerance(atol=1e-5, rtol=1e-4, share=0.999, iou=0.99)
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


def run_network(
    network: Callable[[NormalisedBatch], NetworkOutput], normalised: np.ndarray, recipe: Recipe
) -> dict[str, np.ndarray]:
    """Run the network on one image, `normalised` float32 [height, width, channels].

    Returns:
        Its outputs by role; see `NetworkResult`.

    Raises:
        VerificationError: the outputs are not finite.
    """
    import tensorflow as tf

    outputs = {}
    for role, output in assign_roles(network(tf.constant(normalised[np.newaxis])), recipe).items():
        (array,) = np.asarray(tf.cast(output, tf.float32))
        if role == "vector":
            array = array.mean(axis=(0, 1)) if array.ndim == 3 else array.reshape(-1)
        if not np.isfinite(array).all():
            raise VerificationError("the network returns values that are not finite (NaN or infinity) for a photo")
        outputs[role] = np.asarray(array)
    return outputs


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
        ParityError: Pillow can't read a photo.
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
        size = reference.upright_size(response.photo, recipe.preprocessing)
        result = NetworkResult(run_network(network, normalised, recipe), size)
        comparison = task.compare(response.answers, result, tolerance)
        if not comparison.is_within:
            raise VerificationError(
                f"on {response.photo.name} the SavedModel answers {comparison.answer}, the network "
                f"{comparison.expected}: {task.measure} {comparison.difference:.3g} (allowed: {tolerance}){advice}"
            )
        differences.append(comparison.difference)
    return Agreement(len(responses), max(differences))
