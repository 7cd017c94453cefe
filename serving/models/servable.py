"""A servable: one version of one model, by name, and the runtime that answers for it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from savedmodel_bakery.serving import metrics
from savedmodel_bakery.serving.runtimes.runtime import Runtime
from savedmodel_bakery.wire.tensors import Tensor


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

    def run(
        self,
        feeds: Mapping[str, Tensor],
        fetches: Sequence[str],
        *,
        api: str | None = None,
        timeout_s: float | None = None,
    ) -> list[Tensor]:
        """Run it once; see `Runtime.run`.

        Args:
            feeds: by tensor name.
            fetches: tensor names.
            api: the call that metrics put the run down to; None is none.
            timeout_s: limit of the run; None is none.
        """
        started = time.perf_counter()
        found = self.runtime.run(feeds, fetches, timeout_s=timeout_s)
        if api is not None:
            metrics.time_run(self.name, api, time.perf_counter() - started)
        return found

    def close(self) -> None:
        """Give its memory back; nothing may be running."""
        self.runtime.close()
