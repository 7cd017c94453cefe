"""A servable: one version of one model, by name, and the runtime that answers for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from savedmodel_bakery.serving.runtimes.runtime import Runtime


@dataclass(frozen=True)
class Servable:
    """A loaded version.

    Attributes:
        name: of its model.
        version: its number.
        runtime: what runs it.
    """

    name: str
    version: int
    runtime: Runtime

    @property
    def signatures(self) -> Mapping[str, Any]:
        """SignatureDefs by key."""
        return self.runtime.signatures

    def close(self) -> None:
        """Give its memory back; nothing may be running."""
        self.runtime.close()
