"""Optimisation: how the network is made faster before it is baked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from savedmodel_bakery.exporter.recipe.fields import Choice, FieldGroup, Parsed

OPTIMISATIONS = ("drop-dead-operations", "fold-batch-norm", "fold-constants", "share-constants", "suit-cpu-kernels")


def parse_optimise(text: str) -> frozenset[str]:
    """Parse the steps of optimisation; empty for `none`.

    Raises:
        ValueError: a step is unknown.
    """
    steps = frozenset() if text == "none" else frozenset(text.split(","))
    if not steps <= set(OPTIMISATIONS):
        raise ValueError(f"must be none, or some of {', '.join(OPTIMISATIONS)}, separated by commas")
    return steps


@dataclass(frozen=True, kw_only=True)
class Optimisation(FieldGroup):
    """How the network is made faster before it is baked."""

    optimise: Annotated[
        str,
        Parsed(
            parse=parse_optimise,
            metavar="none|STEP,STEP…",
            help="Steps that make the network faster without changing its answers: some of "
            f"{', '.join(OPTIMISATIONS)}, or none.",
        ),
    ] = ",".join(OPTIMISATIONS)
    precision: Annotated[
        str,
        Choice(
            choices=("float32", "bfloat16", "float16"),
            help="Type that the network computes in, except for its last matrix product. 16 bits halve the weights, "
            "change the answers (see --parity-atol), and are faster only on hardware that supports them.",
        ),
    ] = "float32"

    @property
    def steps(self) -> frozenset[str]:
        """The steps of optimisation to apply."""
        return parse_optimise(self.optimise)
