"""A servable: one loaded version of a model, and the runtime that executes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from savedmodel_bakery.serving.runtimes.runtime import Runtime
from savedmodel_bakery.serving.telemetry.images import RowCounts


@dataclass(frozen=True)
class Servable:
    """A loaded version of a model.

    Attributes:
        name: the model's name.
        version: the version number.
        runtime: executes the model.
        max_pixels: pixels of images that it decodes at one time in a run; None if that is not limited.
        row_counts: counts the rows of its requests; None while it is warmed up.
    """

    name: str
    version: int
    runtime: Runtime
    max_pixels: int | None = None
    row_counts: RowCounts | None = None

    @property
    def signatures(self) -> Mapping[str, Any]:
        """Return the SignatureDefs by signature name."""
        return self.runtime.signatures

    def close(self) -> None:
        """Free the model's memory; no run may be in progress."""
        self.runtime.close()
