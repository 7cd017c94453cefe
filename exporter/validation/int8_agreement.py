"""Compares the answers of an int8 servable with those of the float32 network, on photos it was not calibrated with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from savedmodel_bakery.errors import ParityError, RecipeError
from savedmodel_bakery.exporter.calibration import ENOUGH_PHOTOS, describe_unreadable, digest_of
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.servable_module import Quantisation
from savedmodel_bakery.exporter.tasks.task import Change, Task
from savedmodel_bakery.exporter.tensor_types import NetworkOutput, NormalisedBatch
from savedmodel_bakery.exporter.validation.agreement import network_result
from savedmodel_bakery.exporter.validation.session import PhotoResponse, read_photo

MIN_AGREEMENT = 0.95
"""Share of photos with the same answers below which a version is rejected by default."""

_MIN_PHOTOS = 20
_NOT_WRITTEN = ("quantisation", "common", "change")


def check_min_agreement(stated: float | None, recipe: Recipe) -> float:
    """Return the share of photos whose answers must agree; None is the default, also of another precision."""
    if stated is not None and not recipe.optimisation.is_int8:
        raise RecipeError(
            f"--min-agreement is for precision int8, and the recipe has precision {recipe.optimisation.precision}"
        )
    return MIN_AGREEMENT if stated is None else stated


@dataclass(frozen=True)
class Int8Agreement:
    """How an int8 servable compares with the float32 network."""

    photos: int
    same: float  # number of photos whose answers agree; of boxes and pixels, a share of a photo may
    mean_change: float  # mean difference, in the measure of the task
    max_change: float
    min_agreement: float  # share of photos whose answers must agree
    common: str  # what the answers have in common, and what changes, in the words of the task
    change: str
    quantisation: Quantisation | None  # None if the servable was not made in this process

    @property
    def share(self) -> float:
        """The share of photos whose answers agree."""
        return self.same / self.photos

    @property
    def is_within(self) -> bool:
        """Whether enough photos have answers that agree."""
        return self.share >= self.min_agreement

    @property
    def warnings(self) -> list[str]:
        """What is doubtful, and what to do."""
        warnings = []
        if self.photos < _MIN_PHOTOS:
            alternative = "" if self.quantisation is None else ", or a larger folder with --calibration"
            warnings.append(
                f"the agreement of int8 with float32 is coarse, because it was measured on {self.photos} photos; pass "
                f"{_MIN_PHOTOS} or more with --photos{alternative}"
            )
        if self.quantisation is None:
            return warnings
        if self.quantisation.unreadable_photos:
            warnings.append(f"photos for calibration: {describe_unreadable(self.quantisation.unreadable_photos)}")
        if self.quantisation.available_photos < ENOUGH_PHOTOS:
            warnings.append(
                f"there are only {self.quantisation.available_photos} photos for calibration, including those that "
                f"are held back; {ENOUGH_PHOTOS} or more are better"
            )
        slower = [speed for speed in self.quantisation.speeds if speed.ratio <= 1]
        if slower:
            times = ", ".join(
                f"{speed.int8_ms:.3g} instead of {speed.float32_ms:.3g} ms per image in batches of {speed.batch}"
                for speed in slower
            )
            warnings.append(f"int8 is not faster than float32 on this machine: {times}; consider --precision float32")
        return warnings

    def describe(self) -> list[str]:
        """Return the figures as sentences."""
        lines = [
            f"int8 and float32 have {self.common} for {self.same:.4g} of {self.photos} photos ({self.share:.3f}; at "
            f"least {self.min_agreement:g} is required); {self.change} {self.mean_change:.4f} in the mean "
            f"and {self.max_change:.3f} at most"
        ]
        if self.quantisation is not None:
            speeds = ", ".join(
                f"{speed.ratio:.1f} times as fast as float32 in batches of {speed.batch} ({speed.int8_ms:.3g} instead "
                f"of {speed.float32_ms:.3g} ms per image)"
                for speed in self.quantisation.speeds
            )
            coverage = self.quantisation.coverage
            plural = "" if coverage.layers == 1 else "s"
            lines.append(
                f"int8 computes {coverage.share:.1%} of the multiplications, in {coverage.layers} "
                f"layer{plural}; the network is {speeds}"
            )
        return lines

    def check(self, advice: str = "") -> None:
        """Reject a servable of which too few answers agree; the message ends with `advice`."""
        if not self.is_within:
            raise ParityError(
                f"int8 and float32 have {self.common} for only {self.same:.4g} of {self.photos} photos "
                f"({self.share:.3f}); at least {self.min_agreement:g} is required. Allow less with --min-agreement, "
                f"calibrate with other photos, or bake with --precision float32{advice}"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the figures as values for JSON."""
        values = {name: value for name, value in vars(self).items() if name not in _NOT_WRITTEN}
        values["agreement"] = self.share
        if self.quantisation is not None:
            values |= {
                "calibration_photos": self.quantisation.photos,
                "unreadable_calibration_photos": len(self.quantisation.unreadable_photos),
                "quantised_layers": self.quantisation.coverage.layers,
                "quantised_share": self.quantisation.coverage.share,
                "speeds": [dataclasses.asdict(speed) for speed in self.quantisation.speeds],
            }
        return values


class Int8Check:
    """Compares the responses of an int8 servable with the source's network on the same pixels, batch by batch."""

    def __init__(
        self,
        network: Callable[[NormalisedBatch], NetworkOutput],
        recipe: Recipe,
        task: Task,
        *,
        min_agreement: float,
        quantisation: Quantisation | None,
    ) -> None:
        self._network, self._recipe, self._task = network, recipe, task
        self._min_agreement, self._quantisation = min_agreement, quantisation
        self._changes: list[Change] = []

    def add(self, responses: Sequence[PhotoResponse]) -> None:
        """Compare responses to photos, except those that can't be read or that the network was calibrated with."""
        for response in responses:
            if response.error or digest_of(read_photo(response.photo)) in self._recipe.optimisation.digests:
                continue
            result = network_result(self._network, response, self._recipe)
            self._changes.append(self._task.compare_approximation(response.answers, result))

    def agreement(self) -> Int8Agreement:
        """Return the agreement on all photos so far, which must be one or more."""
        if not self._changes:
            raise ParityError(
                "no photos to compare int8 with float32 on: the network was calibrated with all of them; pass others "
                "with --photos"
            )
        changes = np.concatenate([change.changes for change in self._changes])
        return Int8Agreement(
            len(self._changes),
            sum(change.agreement for change in self._changes),
            float(changes.mean()),
            float(changes.max()),
            self._min_agreement,
            self._task.common,
            self._task.change,
            self._quantisation,
        )
