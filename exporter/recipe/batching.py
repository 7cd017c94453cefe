"""Batching: how many images a run of the network has, and whether concurrent requests share runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe.fields import FieldGroup, Parsed, WholeNumber, recipe_field


def parse_batch_sizes(text: str) -> tuple[int, ...]:
    """Parse sizes of batches."""
    sizes = [int(part) for part in text.split(",")]
    if sizes[0] < 1 or sizes != sorted(set(sizes)):
        raise ValueError
    return tuple(sizes)


@dataclass(frozen=True, kw_only=True)
class Batching(FieldGroup):
    """How many images a run of the network has, and whether and how concurrent requests share runs.

    Raises:
        RecipeError: a value is not allowed, or the last of `allowed_batch_sizes` is not `batch_max`.
    """

    rows_per_run: int = recipe_field(
        WholeNumber(1, 4096),
        "Run the network on at most this many images of a request at a time, which bounds the memory of the request; "
        "its next images are decoded meanwhile.",
        default=8,
        metavar="IMAGES",
    )
    batch_max: int = recipe_field(
        WholeNumber(0, 4096),
        "Join images of concurrent requests in runs of the network with at most this many images; 0 runs the network "
        "for each request separately.",
        default=0,
        metavar="IMAGES",
    )
    batch_timeout_us: int = recipe_field(
        WholeNumber(0, 60_000_000),
        "How long an image waits for others; with 0 it waits only while all --batch-threads are busy.",
        default=0,
        metavar="MICROSECONDS",
    )
    batch_threads: int = recipe_field(
        WholeNumber(1, 1024), "Number of batches computed at a time.", default=1, metavar="THREADS"
    )
    allowed_batch_sizes: str | None = recipe_field(
        Parsed(
            parse_batch_sizes,
            "whole numbers from 1, each larger than the one before, separated by commas, such as 1,4,16",
        ),
        "Sizes of batches; a batch is padded to the next of them. The last must be --batch-max.",
        metavar="SIZE,SIZE…",
        when_unset="all",
    )

    def _check_combination(self) -> None:
        if self.allowed_batch_sizes is not None and self.batch_sizes[-1] != self.batch_max:
            raise RecipeError(
                f"invalid allowed_batch_sizes {self.allowed_batch_sizes!r}: the last size must be batch_max, which is "
                f"{self.batch_max}"
            )

    @property
    def rows_per_read(self) -> int:
        """How many images of a request are read before the network runs: `rows_per_run`, or more to fill batches."""
        return (
            self.rows_per_run if self.batch_max == 0 else math.ceil(self.rows_per_run / self.batch_max) * self.batch_max
        )

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The allowed sizes of a batch, smallest first."""
        if self.allowed_batch_sizes is None:
            return tuple(range(1, self.batch_max + 1))
        return parse_batch_sizes(self.allowed_batch_sizes)
