"""Determines the range of numbers that the codes of an activation stand for, and the codes of kernels.

Ranges are measured on calibration images. Kernels are int8, symmetric, with a scale per output channel.
"""

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

# CPUs without VNNI add the products of two neighbouring input channels in 16 bits, which saturate. Codes of activations
# are 255 at most, and 255 · 128 is within int16.
_MAX_PAIR = 128
MAX_WEIGHT = 127

_VARIABLE_BYTES = 2**15


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
    """Run the network on normalised images, float32 [images, height, width, channels]; return the range of each tensor.

    Tensors of a group in `together` get one range.
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


class Codes(NamedTuple):
    """A quint8 tensor and the range of its codes."""

    tensor: str
    range: Range


def add_codes(graph: FlatGraph, tensor: str, codes: Range) -> Codes:
    """Add the codes of a float32 tensor to the graph."""
    ends = [graph.add_constant(f"{tensor}/{end}", np.float32(getattr(codes, end))) for end in ("low", "high")]
    made = graph.add("QuantizeV2", f"{tensor}/codes", tensor, *ends, T=tf.quint8)
    # oneDNN has kernels for these modes only.
    attributes = graph.nodes[made].attr
    attributes["mode"].s = b"MIN_FIRST" if codes.low else b"SCALED"
    attributes["round_mode"].s = b"HALF_AWAY_FROM_ZERO" if codes.low else b"HALF_TO_EVEN"
    return Codes(made, codes)


def add_kernel(graph: FlatGraph, name: str, codes: np.ndarray) -> str:
    """Add the codes of a kernel, int8, as a qint8 tensor, and return its name.

    Large ones are variables, which all signatures share in the file and in memory. TensorFlow would copy a constant
    often when it prepares a signature: ResNet50 took 14 s until five were ready, and 4 s with variables. Reading a
    variable takes about a microsecond in each run, so small ones are constants.
    """
    if codes.nbytes < _VARIABLE_BYTES:
        return graph.add_constant(f"{name}/int8", codes, tf.qint8)
    weight = graph.add_weight(f"{name}/int8", codes)
    return graph.add("Bitcast", f"{name}/qint8", weight, T=tf.int8, type=tf.qint8)


def add_ends(graph: FlatGraph, name: str, codes: Range) -> list[str]:
    """Add the numbers of the codes 0 and 255 without the low, which biases have; return the names of their nodes."""
    ends = {"zero": 0, "width": codes.width}
    return [graph.add_constant(f"{name}/{end}", np.float32(value)) for end, value in ends.items()]


class Kernel(NamedTuple):
    """A quantised kernel."""

    codes: np.ndarray  # int8, in the shape of the kernel
    scales: np.ndarray  # float64 [output channels]; a weight is its code times the scale of its output channel
    sums: np.ndarray  # float64 [output channels], the sums of the weights that the codes stand for


def quantise_depthwise_kernel(kernel: np.ndarray, name: str) -> Kernel:
    """Quantise the kernel of the depthwise convolution of a name, float32 [height, width, channels, 1]."""
    _check_finite(kernel, name)
    largest = np.abs(kernel).max(axis=(0, 1, 3)).astype(np.float64)
    scales = _scales(largest / MAX_WEIGHT)
    codes = np.round(kernel / scales[:, np.newaxis]).astype(np.int8)
    return Kernel(codes, scales, codes.sum(axis=(0, 1, 3), dtype=np.float64) * scales)


def quantise_kernel(kernel: np.ndarray, name: str) -> Kernel:
    """Quantise the kernel of the convolution of a name, float32 [height, width, input channels, output channels].

    No two neighbouring input channels have codes whose sum is beyond 128, so that CPUs without VNNI compute the same.
    """
    _check_finite(kernel, name)
    height, width, channels, filters = kernel.shape
    weights = kernel.astype(np.float64)
    if channels % 2:  # kernels that work on rows of all channels may pair the last with the first of the next pixel
        scales = _scales(np.abs(weights).max(axis=(0, 1, 2)) / (_MAX_PAIR // 2))
        codes = np.round(weights / scales)
    else:
        pairs = weights.reshape(height, width, channels // 2, 2, filters)
        largest_sum = np.abs(pairs.sum(axis=3)).max(axis=(0, 1, 2))
        largest = np.abs(weights).max(axis=(0, 1, 2))
        scales = _scales(np.maximum(largest / MAX_WEIGHT, largest_sum / _MAX_PAIR))
        paired = np.round(pairs / scales)
        sums = paired.sum(axis=3)
        # Rounding may have added 1 to the sum.
        paired[..., 0, :] -= np.where(np.abs(sums) > _MAX_PAIR, np.sign(sums), 0)
        codes = paired.reshape(kernel.shape)
    codes = codes.astype(np.int8)
    return Kernel(codes, scales, codes.sum(axis=(0, 1, 2), dtype=np.float64) * scales)


def _check_finite(kernel: np.ndarray, name: str) -> None:
    if not np.isfinite(kernel).all():
        raise SourceError(
            f"cannot quantise the network: the weights of its operation {name} have values that are not finite"
        )


def _scales(scales: np.ndarray) -> np.ndarray:
    """Return scales that are float32 numbers, as the kernels of TensorFlow take them; 1 for filters of zeros only."""
    rounded = np.where(scales > 0, scales, 1.0).astype(np.float32)
    return np.asarray(np.nextafter(rounded, np.float32(np.inf)), np.float64)
