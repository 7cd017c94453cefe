"""How far a graph's probabilities may be from the reference pipeline's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """How far probabilities may be apart: `atol` + `rtol` · the reference's, 0..1."""

    atol: float
    rtol: float


DEFAULT_TOLERANCE = Tolerance(atol=0.01, rtol=0.0)
