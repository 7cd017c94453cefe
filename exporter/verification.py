"""Verification: the staged SavedModel must answer as the network itself does on the same pixels.

It is loaded back in a fresh process, as the real server loads it.

tensorflow_model_server restores a SavedModel into a Session. A SavedModel whose variables can't be restored that way
still answers through tf.saved_model.load, so only a Session in a process that never held the network is proof.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.errors import VerificationError
from exporter.recipe import Recipe

# Two runs of the same network differ in the order of additions; a wrong one differs by far more.
ATOL = 1e-5
RTOL = 1e-4


@dataclass(frozen=True)
class Agreement:
    """How the SavedModel's answers compare with the network's.

    Attributes:
        photos: how many were compared.
        max_difference: the largest difference of a score, 0..1.
    """

    photos: int
    max_difference: float


def verify(
    saved_model: Path, network: Callable[[Any], Any], recipe: Recipe, names: list[str], photos: list[Path]
) -> Agreement:
    """Load `saved_model` in a fresh process, ask it about the photos and compare with `network`.

    Args:
        saved_model: a version folder.
        network: from float32 [batch, height, width, 3], normalised, to [batch, classes].
        recipe: the recipe that was baked.
        names: class names in the order of class ids.
        photos: image files that the SavedModel must be able to read.

    Raises:
        VerificationError: it can't be loaded or run, or its answers differ; the message says on which photo.
    """
    with tempfile.TemporaryDirectory() as folder:
        answers_path = Path(folder) / "answers.npz"
        child = subprocess.run(
            [sys.executable, "-m", "exporter.session_answers", str(saved_model), str(answers_path), *map(str, photos)],
            capture_output=True,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            check=False,
        )
        if child.returncode != 0:
            raise VerificationError(
                "the SavedModel fails in a Session, as tensorflow_model_server would run it: "
                + (child.stderr.strip().splitlines() or ["no reason given"])[-1]
            )
        with np.load(answers_path) as archive:
            answers = {name: archive[name] for name in archive.files}
    return _compare(answers, _probabilities(network, recipe, answers["pixels"]), names, photos)


def _probabilities(network: Callable[[Any], Any], recipe: Recipe, pixels: np.ndarray) -> np.ndarray:
    """What the network itself says of `pixels` float32 [batch, height, width, 3]: float32 [batch, classes].

    Raises:
        VerificationError: its outputs are not what the recipe says they are.
    """
    import tensorflow as tf

    from exporter.image.pixels import normalise

    given = tf.reshape(tf.cast(network(normalise(tf.constant(pixels), recipe)), tf.float32), [len(pixels), -1])
    if not bool(tf.reduce_all(tf.math.is_finite(given))):
        raise VerificationError("for the example photos the network gives values that are not finite (NaN or infinity)")
    sums = np.asarray(tf.reduce_sum(given, axis=1))
    are_probabilities = bool(tf.reduce_all(given >= 0)) and np.allclose(sums, 1, atol=1e-3)
    if are_probabilities != (recipe.outputs == "probabilities"):
        other = "probabilities" if are_probabilities else "logits"
        raise VerificationError(
            f"outputs is {recipe.outputs}, but for the example photos the network's add up to {sums.tolist()}, from "
            f"{float(tf.reduce_min(given)):.3g} up: they look like {other}; bake with --outputs {other}"
        )
    return np.asarray(given if are_probabilities else tf.nn.softmax(given))


def _compare(answers: dict[str, np.ndarray], expected: np.ndarray, names: list[str], photos: list[Path]) -> Agreement:
    best = -np.sort(-expected, axis=1)[:, : answers["scores"].shape[1]]
    of_ids = np.take_along_axis(expected, answers["class_ids"], axis=1)
    for row, photo in enumerate(photos):
        for wanted in (best[row], of_ids[row]):
            if not np.allclose(wanted, answers["scores"][row], rtol=RTOL, atol=ATOL):
                raise VerificationError(
                    f"on {photo.name} the SavedModel's scores are {answers['scores'][row].tolist()}, the network's "
                    f"{wanted.tolist()}; allowed is a difference of {ATOL} + {RTOL} of the score"
                )
        labels = [names[class_id] for class_id in answers["class_ids"][row]]
        if labels != answers["labels"][row].tolist() or labels[0] != answers["default"][row]:
            raise VerificationError(f"on {photo.name} the SavedModel's labels are not those of its class ids")
    return Agreement(len(photos), float(np.abs(best - answers["scores"]).max()))
