"""Tells the stages of a run apart: reading images, and the network.

The image graph of a baked model reads the images of a run in one loop, which TensorFlow runs as one operation
(`exporter/graph_functions.py`); it lowers all other loops into their operations. So a trace of the run shows the time
that reading took.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_LOOPS = ("While", "StatelessWhile")


class StageSampler:
    """Chooses the runs whose stages are timed.

    Args:
        interval: runs from one that is timed to the next.
        record: takes the seconds of decoding and of the network.
    """

    def __init__(self, interval: int, record: Callable[[float, float], None]) -> None:
        self._interval = interval
        self._record = record
        self._runs = itertools.count(1)

    def sample(self) -> Any | None:
        """Return the RunMetadata to fill in the next run; None if it isn't timed."""
        return None if next(self._runs) % self._interval else tf.compat.v1.RunMetadata()

    def record(self, metadata: Any, run_s: float) -> None:
        """Record a run of so many seconds. The network is all of it but reading images."""
        decoding_s = reading_s(metadata)
        self._record(decoding_s, max(0.0, run_s - decoding_s))


def reading_s(metadata: Any) -> float:
    """Return the seconds during which a run read images."""
    spans = sorted(
        (node.all_start_micros, node.all_start_micros + node.all_end_rel_micros)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        if any(f" = {loop}(" in node.timeline_label for loop in _LOOPS)
    )
    total = end = 0
    for start, stop in spans:  # a pipeline may read the images of two models at the same time
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total / 1e6
