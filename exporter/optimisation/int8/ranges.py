"""Determines the range of numbers that the codes of each activation stand for, from what calibration images give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.optimisation.flat_graph import FlatGraph
from savedmodel_bakery.exporter.tensor_types import Tensor

_IMAGES_PER_RUN = 8
_MAX_CODE = 255

# QuantizeV2 widens narrower ranges (its attribute ensure_minimum_range).
_MIN_WIDTH = 0.0101


class Range(NamedTuple):
    """The numbers of the codes 0 and 255; `low` is not above 0, and one of the codes stands for 0 exactly."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """The distance of both numbers."""
        return self.high - self.low

    @classmethod
    def of(cls, lowest: float, highest: float) -> Range:
        """Return the smallest range that contains these numbers and 0, up to half a code.

        With a code for 0, kernels that round the range themselves, as that of QuantizeV2 without oneDNN, leave it as
        it is.
        """
        lowest, highest = min(lowest, 0.0), max(highest, 0.0)
        step = max(highest - lowest, _MIN_WIDTH) / _MAX_CODE
        zero = round(-lowest / step)
        return cls(-zero * step, (_MAX_CODE - zero) * step)


def measure_ranges(
    graph: FlatGraph, tensors: Iterable[str], images: np.ndarray, together: Sequence[Sequence[str]]
) -> Mapping[str, Range]:
    """Run the network on images, and return the range of each tensor.

    Args:
        graph: of the network.
        tensors: to measure.
        images: normalised, float32 [images, height, width, channels].
        together: groups of tensors that get one range.

    Raises:
        SourceError: a tensor has infinite values or NaN.
    """
    names = sorted({*tensors, *(tensor for group in together for tensor in group)})
    run = graph.function(names, _extremes)
    runs = [
        np.array(run(tf.constant(images[start : start + _IMAGES_PER_RUN])))
        for start in range(0, len(images), _IMAGES_PER_RUN)
    ]
    seen = np.stack(runs)  # [runs, tensors, 2]
    extremes = dict(
        zip(names, zip(seen[..., 0].min(0).tolist(), seen[..., 1].max(0).tolist(), strict=True), strict=True)
    )
    for tensor, (lowest, highest) in extremes.items():
        if not (math.isfinite(lowest) and math.isfinite(highest)):
            raise SourceError(
                f"cannot quantise the network: its tensor {tensor} has values that are not finite (minimum {lowest}, "
                f"maximum {highest}) for the calibration photos; bake with --precision float32"
            )
    for _ in together:  # a tensor may be in several groups
        for group in together:
            lowest, highest = zip(*(extremes[tensor] for tensor in group), strict=True)
            extremes.update(dict.fromkeys(group, (min(lowest), max(highest))))
    return {tensor: Range.of(*ends) for tensor, ends in extremes.items()}


def _extremes(tensor: Tensor) -> Tensor:
    return tf.stack([tf.reduce_min(tensor), tf.reduce_max(tensor)])
