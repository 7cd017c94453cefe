"""Chooses the tensors that a run fetches. TensorFlow prepares every new list of fetches, and keeps that for ever.

For a network, that takes seconds and tens of megabytes, so callers must not choose among too many lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_MAX_LISTS = 16


class FetchLists:
    """Limits how many lists of tensors a graph fetches.

    Args:
        signatures: SignatureDefs of the graph by name.
        max_lists: that requests choose; beyond it, a request fetches all outputs of its signature.
    """

    def __init__(self, signatures: Mapping[str, Any], *, max_lists: int = _MAX_LISTS) -> None:
        self._signatures = [
            (
                {info.name for info in signature.inputs.values()},
                tuple(sorted({info.name for info in signature.outputs.values()})),
            )
            for signature in signatures.values()
        ]
        self._max_lists = max_lists
        self._known: set[tuple[str, ...]] = set()

    def choose(self, feeds: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
        """Return which tensors to fetch for a request that feeds and needs others; each once, in a fixed order."""
        needed = tuple(sorted(set(names)))
        if needed not in self._known:
            if len(self._known) >= self._max_lists:
                fed = set(feeds)
                fitting = (outputs for inputs, outputs in self._signatures if inputs <= fed and {*needed} <= {*outputs})
                return min(fitting, key=len, default=needed)
            self._known.add(needed)
        return needed
