"""Optimisation and batching: how the network is made faster, and how many images a run of it has."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe.fields import Choice, FieldGroup, Parsed, PathOrName, WholeNumber, recipe_field

OPTIMISATIONS = ("drop-dead-operations", "fold-batch-norm", "fold-constants", "share-constants", "suit-cpu-kernels")

INT8 = "int8"

# Without them, convolutions have no bias to quantise, or a kernel that is computed in the graph.
_STEPS_FOR_INT8 = frozenset({"drop-dead-operations", "fold-batch-norm", "fold-constants"})

_NO_NAME = "(?!)"
_DIGEST = re.compile("[0-9a-f]{16}")


def parse_digests(text: str) -> tuple[str, ...]:
    """Parse digests of photos."""
    digests = tuple(text.split(","))
    if not all(map(_DIGEST.fullmatch, digests)):
        raise ValueError
    return digests


def parse_optimise(text: str) -> frozenset[str]:
    """Parse the steps of optimisation; empty for `none`."""
    steps = frozenset() if text == "none" else frozenset(text.split(","))
    if not steps <= set(OPTIMISATIONS):
        raise ValueError
    return steps


def parse_warm_up(text: str) -> frozenset[str]:
    """Parse names of signatures."""
    names = text.split(",")
    if not all(map(str.isidentifier, names)) or len(set(names)) < len(names):
        raise ValueError
    return frozenset(names)


def parse_batch_sizes(text: str) -> tuple[int, ...]:
    """Parse sizes of batches."""
    sizes = [int(part) for part in text.split(",")]
    if sizes[0] < 1 or sizes != sorted(set(sizes)):
        raise ValueError
    return tuple(sizes)


@dataclass(frozen=True, kw_only=True)
class Optimisation(FieldGroup):
    """How the network is made faster before it is baked."""

    optimise: str = recipe_field(
        Parsed(parse_optimise, f"none, or some of {', '.join(OPTIMISATIONS)}, separated by commas"),
        "Steps that make the network faster without changing its answers: some of "
        f"{', '.join(OPTIMISATIONS)}, or none.",
        default=",".join(OPTIMISATIONS),
        metavar="none|STEP,STEP…",
    )
    precision: str = recipe_field(
        Choice("float32", "bfloat16", "float16", INT8),
        "Type that the network computes in, except for its last matrix product. 16 bits halve the weights, "
        "change the answers (see --parity-atol), and are faster only on hardware that supports them. int8 needs "
        "--calibration, changes the answers more (see --min-agreement), and is faster on CPUs with AVX512-VNNI.",
        default="float32",
    )
    calibration: str | None = recipe_field(
        PathOrName(_NO_NAME),
        "Photos that precision int8 measures the network's activations on: a folder with photos and archives, or an "
        "archive. Photos like those that will be sent; 50 or more, 10 at least.",
        metavar="FOLDER",
        when_unset="required for precision int8",
    )
    calibration_digests: str | None = recipe_field(
        Parsed(parse_digests, "the first 16 hexadecimal digits of the SHA-256 of each photo, separated by commas"),
        "The photos of the calibration folder to measure on, as the recipe of a version states them.",
        metavar="DIGEST,…",
        when_unset="chosen at random, always the same",
    )
    warm_up: str | None = recipe_field(
        Parsed(parse_warm_up, "names of signatures, separated by commas, or all, or none"),
        "Signatures that a server prepares before the version becomes available, or all, or none. Each takes half a "
        "second or more; others are prepared in their first call.",
        metavar="SIGNATURE,…|all|none",
        when_unset="serving_default and top_k",
    )

    @property
    def steps(self) -> frozenset[str]:
        """The steps of optimisation to apply."""
        return parse_optimise(self.optimise)

    def warmed_up(self, signatures: Collection[str]) -> frozenset[str]:
        """Return which of the signatures to prepare."""
        match self.warm_up:
            case None:
                return frozenset(signatures) & {"serving_default", "top_k"}
            case "all":
                return frozenset(signatures)
            case "none":
                return frozenset()
        names = parse_warm_up(self.warm_up)
        if unknown := sorted(names - set(signatures)):
            raise RecipeError(
                f"invalid warm_up {self.warm_up!r}: no signature is named {unknown[0]!r}; must be all, none, or some "
                f"of {', '.join(signatures)}"
            )
        return names

    @property
    def is_int8(self) -> bool:
        """Whether the network is quantised."""
        return self.precision == INT8

    @property
    def digests(self) -> frozenset[str]:
        """The digests of the photos that the network was calibrated with; empty before it is baked."""
        return frozenset() if self.calibration_digests is None else frozenset(parse_digests(self.calibration_digests))

    def _check_combination(self) -> None:
        if not self.is_int8:
            for name in ("calibration", "calibration_digests"):
                if getattr(self, name) is not None:
                    raise RecipeError(
                        f"invalid {name} {getattr(self, name)!r}: precision {self.precision} has none, only {INT8}; "
                        "leave it out, also of the recipe file"
                    )
            return
        if self.calibration is None:
            raise RecipeError("precision int8 needs photos to calibrate with: pass a folder of them with --calibration")
        if missing := sorted(_STEPS_FOR_INT8 - self.steps):
            raise RecipeError(
                f"invalid optimise {self.optimise!r}: precision int8 needs the steps {', '.join(missing)} too"
            )


@dataclass(frozen=True, kw_only=True)
class Batching(FieldGroup):
    """How many images a run of the network has, and whether and how concurrent requests share runs."""

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
        if self.batch_max == 0:
            return self.rows_per_run
        return math.ceil(self.rows_per_run / self.batch_max) * self.batch_max

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The allowed sizes of a batch, smallest first."""
        if self.allowed_batch_sizes is None:
            return tuple(range(1, self.batch_max + 1))
        return parse_batch_sizes(self.allowed_batch_sizes)
