"""What a task decides, and what their references share; the rest of a servable is the same for every task."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.tensor_types import NetworkOutputs, Tensor

FARTHEST_FRACTION = 2
"""Distance from 0 up to which coordinates are taken for fractions, of which those of the image's edges are 0 and 1."""

Answers: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The outputs of a servable's signatures for one image: by signature, then by alias, arrays without the batch axis."""


class NetworkResult(NamedTuple):
    """What a network returns for one image."""

    outputs: Mapping[str, np.ndarray]  # by role (see `network_outputs`), finite float32 without batch axis
    size: tuple[int, int]  # height and width of the upright image in pixels


class Column(NamedTuple):
    """An output of a signature."""

    shape: tuple[int, ...]  # of one image's value
    blank: np.generic | bytes  # the value of an image that can't be read, of the output's dtype


@dataclass(frozen=True)
class Signature:
    """A signature of a servable; `takes` files, tf.Examples with a file each, or arrays of the network's input size.

    `compute` computes the outputs in the graph, each [images, …] in the order of `columns`, from the network's outputs
    by role and the sizes of the images, int64 [images, 2]: upright heights and widths in pixels.
    """

    takes: Literal["images", "examples", "pixels"]
    columns: Mapping[str, Column]
    compute: Callable[[NetworkOutputs, Tensor], Sequence[Tensor]]
    # Whether an image that can't be read fails the request; otherwise its row is blank, with `ok` and `error`.
    rejects_bad_images: bool = False


@dataclass(frozen=True)
class Tolerance:
    """Allowed differences."""

    atol: float = 0.0  # of a number
    rtol: float = 0.0  # in addition, as a part of the expected value
    share: float = 1.0  # part of the pixels of a map, or of the boxes of an image, that must agree; 0..1
    iou: float = 1.0  # intersection over union from which on two boxes agree; 0..1

    def replaced(self, **parts: float | None) -> Tolerance:
        """Return a tolerance with other parts; None keeps a part."""
        return dataclasses.replace(self, **{name: value for name, value in parts.items() if value is not None})

    def limited_to(self, other: Tolerance) -> Tolerance:
        """Return this tolerance with only those parts that `other` has."""
        absent = Tolerance()
        parts = {name: value for name, value in vars(self).items() if getattr(other, name) != getattr(absent, name)}
        return Tolerance(**parts)

    def describe_for(self, task: Tolerance) -> str:
        """Return the text without the parts that don't apply to the task with this default."""
        absent = [] if task.atol or task.rtol else ["atol", "rtol"]
        absent += [name for name in ("share", "iou") if getattr(task, name) == 1]
        return str(self.replaced(**{name: getattr(Tolerance(), name) for name in absent}))

    def allows(self, differences: np.ndarray, expected: np.ndarray) -> bool:
        """Return whether all absolute differences from the expected values are allowed."""
        return bool(np.all(differences <= self.atol + self.rtol * np.abs(expected)))

    def allows_share(self, difference: float) -> bool:
        """Return whether a share of 0..1 may disagree."""
        return difference <= 1 - self.share + 1e-9  # 1 - 0.99 is a little less than 0.01

    def __str__(self) -> str:
        parts = [f"{self.atol:g} + {self.rtol:g} of the expected value"] if self.atol or self.rtol else []
        parts += [f"an IoU of {self.iou:g}"] if self.iou < 1 else []
        parts += [f"{1 - self.share:.3g} in all"] if self.share < 1 else []
        return ", ".join(parts) or "0"


@dataclass(frozen=True)
class Doubt:
    """Why a network's outputs for an image look unlike those that the recipe states.

    It counts if all photos have it, as those for one photo may look so by chance.
    """

    reason: str  # in the same words for every photo
    values: str  # of this photo, in a few words
    advice: str
    is_error: bool = False  # whether the version is rejected; otherwise it is a warning


class Comparison(NamedTuple):
    """How the answers for one image compare with the expected ones."""

    difference: float  # the largest, in the task's `measure`
    is_within: bool
    answer: str  # in a few words
    expected: str
    caveat: str = ""  # why their agreement says little, such as that both are empty; else empty
    doubts: tuple[Doubt, ...] = ()


class Change(NamedTuple):
    """How the answer for an image changes if a network is replaced by an approximation of it."""

    agreement: float  # 0..1; for most tasks 1 if the answer counts as the same, and 0 otherwise
    changes: np.ndarray  # differences, [any number]


class Task(ABC):
    """What the outputs of a network mean: once in the graph and once, independently, with NumPy."""

    name: ClassVar[str]
    measure: ClassVar[str]  # what `compare` calls the difference
    tolerance: ClassVar[Tolerance]  # allowed by default between a servable and the reference pipeline
    # What an approximation's answers have in common with those of the network, and what changes, in a few words.
    common: ClassVar[str]
    approximation: ClassVar[Tolerance]  # within which the answers of an approximation count as the same
    max_side: ClassVar[int | None] = None  # height and width of an image, in pixels; None for no limit

    @abstractmethod
    def signatures(self) -> Mapping[str, Signature]:
        """Return the signatures by name; the first that takes images is the one that says most."""

    @abstractmethod
    def compare(self, answers: Answers, result: NetworkResult, tolerance: Tolerance) -> Comparison:
        """Compare the answers for an image with those that follow from the network's outputs for it.

        The answers are those of all signatures that take images, or of those that don't reject bad ones.

        Raises:
            VerificationError: the outputs contradict the recipe's `outputs`, or the answers contradict each other.
        """

    @property
    def change(self) -> str:
        """The subject and verb of a sentence with the differences of `compare_approximation`."""
        return f"the {self.measure} is"

    def compare_approximation(self, answers: Answers, result: NetworkResult) -> Change:
        """Compare the answers of an approximation of a network with those that follow from the network's outputs."""
        comparison = self.compare(answers, result, self.approximation)
        agreement = float(comparison.is_within) if self.approximation.share == 1 else 1 - comparison.difference
        return Change(agreement, np.array([comparison.difference]))


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return the probability of each logit, whatever the others are."""
    return np.asarray(1 / (1 + np.exp(-logits)))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities that add up to 1 along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def doubt_logits(outputs: np.ndarray, advice: str = "--outputs probabilities") -> tuple[Doubt, ...]:
    """Return a doubt if outputs that the recipe calls logits are all from 0 to 1, as probabilities are."""
    lowest, highest = float(outputs.min(initial=0)), float(outputs.max(initial=0))
    if lowest < 0 or highest > 1:
        return ()
    values = f"from {float(outputs.min()):.3g} to {highest:.3g}" if outputs.size > 1 else f"{highest:.3g}"
    reason = "outputs is logits, but the network's scores are from 0 to 1 like probabilities"
    return (Doubt(reason, values, f"if they are probabilities, bake with {advice}"),)


def likely_unit(unit: str, farthest: np.ndarray) -> str:
    """Return the unit that coordinates of the stated `unit` seem to have: `fractions` or `pixels`.

    The `farthest` are the distances from 0 of places, [any number]; single ones may be far outside of the image.
    """
    if unit == "fractions" and np.median(farthest) > FARTHEST_FRACTION:
        return "pixels"
    if unit == "pixels" and farthest.max() <= FARTHEST_FRACTION:
        return "fractions"
    return unit


def check_probabilities(outputs: np.ndarray) -> None:
    """Check that outputs which the recipe calls probabilities are from 0 to 1."""
    wrong = outputs[(outputs < 0) | (outputs > 1)]
    if wrong.size:
        raise VerificationError(
            f"outputs is probabilities, but the network returns {wrong[0]:.3g} for a photo; bake with --outputs logits"
        )


class Placement(NamedTuple):
    """The position of a photo in the network's input, by Python's integers; see `image.framing` for the graph's."""

    size: tuple[int, int]  # height and width of the upright photo
    corner: tuple[int, int]  # its distance from the top and from the left of the network's input, in pixels of that
    fitted: tuple[int, int]  # its height and width there

    def to_photo(self, points: np.ndarray) -> np.ndarray:
        """Convert points [any number, 2], each y and x, from the network's input to the photo."""
        corner, fitted, size = (np.array(sides, np.float64) for sides in (self.corner, self.fitted, self.size))
        return np.asarray((points - corner) / fitted * size)


def placement_of(size: tuple[int, int], preprocessing: Preprocessing) -> Placement:
    """Return the placement of an upright photo, for recipes that don't crop."""
    rounding, most = preprocessing.letterbox_rounding, preprocessing.size
    if rounding is None:
        return Placement(size, (0, 0), most)
    if rounding == "down":
        ratio = max(np.float32(side) / np.float32(whole) for side, whole in zip(size, most, strict=True))
        exact = [np.float32(side) / ratio for side in size]
        top, left = (max(floor((whole - side) / 2), 0) for whole, side in zip(most, exact, strict=True))
        height, width = map(floor, exact)
        return Placement(size, (top, left), (max(height, 1), max(width, 1)))
    if rounding == "even":
        zoom = min(whole / side for side, whole in zip(size, most, strict=True))
        height, width = (max(round(side * zoom), 1) for side in size)
    else:
        exact_zoom = min(Fraction(whole, side) for side, whole in zip(size, most, strict=True))
        height, width = (max(floor(side * exact_zoom + Fraction(1, 2)), 1) for side in size)
    return Placement(size, ((most[0] - height) // 2, (most[1] - width) // 2), (height, width))
