"""How far the probabilities of two pipelines may differ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """Allowed difference of a probability: `atol` + `rtol` · the expected value, 0..1."""

    atol: float
    rtol: float


DEFAULT_TOLERANCE = Tolerance(atol=0.01, rtol=0.0)
