"""What a task decides; the rest of a servable is the same for every task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from savedmodel_bakery.exporter.tensor_types import NetworkOutput, Tensor

Answers: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The outputs of a servable's signatures for one image: by signature, then by alias, arrays without the batch axis."""


class Column(NamedTuple):
    """An output of a signature.

    Attributes:
        shape: of one image's value.
        blank: the value of an image that can't be read; a NumPy number or bytes, of the output's dtype.
    """

    shape: tuple[int, ...]
    blank: np.generic | bytes


@dataclass(frozen=True)
class Signature:
    """A signature of a servable.

    Attributes:
        takes: `images`, files; `examples`, each with an image file; or `pixels`, arrays of the network's input size.
        columns: its outputs by alias.
        compute: computes them in the graph, in the order of `columns`, each [images, …], from the network's output.
        rejects_bad_images: whether an image that can't be read fails the request; otherwise its row is blank, and the
            outputs `ok` and `error` tell so.
    """

    takes: Literal["images", "examples", "pixels"]
    columns: Mapping[str, Column]
    compute: Callable[[NetworkOutput], Sequence[Tensor]]
    rejects_bad_images: bool = False


@dataclass(frozen=True)
class Tolerance:
    """Allowed difference of a number: `atol` + `rtol` · the expected value."""

    atol: float
    rtol: float

    def replaced(self, atol: float | None, rtol: float | None) -> Tolerance:
        """Return a tolerance with other parts; None keeps a part."""
        return Tolerance(self.atol if atol is None else atol, self.rtol if rtol is None else rtol)

    def allows(self, differences: np.ndarray, expected: np.ndarray) -> bool:
        """Return whether all absolute differences from the expected values are allowed."""
        return bool(np.all(differences <= self.atol + self.rtol * np.abs(expected)))

    def __str__(self) -> str:
        return f"{self.atol:g} + {self.rtol:g} of the expected value"


class Comparison(NamedTuple):
    """How the answers for one image compare with the expected ones.

    Attributes:
        difference: the largest, in the task's `measure`.
        is_within: whether it is within tolerance.
        answer: the answer in a few words.
        expected: the expected answer in a few words.
    """

    difference: float
    is_within: bool
    answer: str
    expected: str


class Task(Protocol):
    """What the outputs of a network mean: once in the graph and once, independently, with NumPy.

    Attributes:
        name: as the recipe states it.
        measure: what `compare` calls the difference.
        tolerance: allowed by default between a servable and the reference pipeline.
    """

    name: ClassVar[str]
    measure: ClassVar[str]
    tolerance: ClassVar[Tolerance]

    def signatures(self) -> Mapping[str, Signature]:
        """Return the signatures by name; the first that takes images is the one that says most."""
        ...

    def compare(self, answers: Answers, outputs: np.ndarray, tolerance: Tolerance) -> Comparison:
        """Compare the answers for an image with those that follow from the network's outputs for it.

        Args:
            answers: of all signatures that take images, or of those that don't reject bad ones.
            outputs: float32 [units], finite.
            tolerance: allowed difference.

        Raises:
            VerificationError: the outputs contradict the recipe's `outputs`, or the answers contradict each other.
        """
        ...
