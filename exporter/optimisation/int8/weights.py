"""Quantises kernels to int8, symmetric, with a scale per output channel. Knows no graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_MAX_CODE = 127
# CPUs without VNNI add the products of two neighbouring input channels in 16 bits, which saturate. Codes of activations
# are 255 at most, and 255 · 128 is within int16.
_MAX_PAIR = 128


class Kernel(NamedTuple):
    """A quantised kernel.

    Attributes:
        codes: int8, in the shape of the kernel.
        scales: float64 [output channels]; a weight is its code times the scale of its output channel.
        sums: float64 [output channels], the sums of the weights that the codes stand for.
    """

    codes: np.ndarray
    scales: np.ndarray
    sums: np.ndarray


def quantise_depthwise_kernel(kernel: np.ndarray) -> Kernel:
    """Quantise the kernel of a depthwise convolution, float32 [height, width, channels, 1]."""
    largest = np.abs(kernel).max(axis=(0, 1, 3)).astype(np.float64)
    scales = _scales(largest / _MAX_CODE)
    codes = np.round(kernel / scales[:, np.newaxis]).astype(np.int8)
    return Kernel(codes, scales, codes.sum(axis=(0, 1, 3), dtype=np.float64) * scales)


def quantise_kernel(kernel: np.ndarray) -> Kernel:
    """Quantise the kernel of a convolution, float32 [height, width, input channels, output channels].

    No two neighbouring input channels have codes whose sum is beyond 128, so that CPUs without VNNI compute the same.
    """
    height, width, channels, filters = kernel.shape
    weights = kernel.astype(np.float64)
    if channels % 2:  # kernels that work on rows of all channels may pair the last with the first of the next pixel
        scales = _scales(np.abs(weights).max(axis=(0, 1, 2)) / (_MAX_PAIR // 2))
        codes = np.round(weights / scales)
    else:
        pairs = weights.reshape(height, width, channels // 2, 2, filters)
        largest_sum = np.abs(pairs.sum(axis=3)).max(axis=(0, 1, 2))
        largest = np.abs(weights).max(axis=(0, 1, 2))
        scales = _scales(np.maximum(largest / _MAX_CODE, largest_sum / _MAX_PAIR))
        paired = np.round(pairs / scales)
        sums = paired.sum(axis=3)
        # Rounding may have added 1 to the sum.
        paired[..., 0, :] -= np.where(np.abs(sums) > _MAX_PAIR, np.sign(sums), 0)
        codes = paired.reshape(kernel.shape)
    codes = codes.astype(np.int8)
    return Kernel(codes, scales, codes.sum(axis=(0, 1, 2), dtype=np.float64) * scales)


def _scales(scales: np.ndarray) -> np.ndarray:
    """Return scales that are float32 numbers, as the kernels of TensorFlow take them; 1 for filters of zeros only."""
    rounded = np.where(scales > 0, scales, 1.0).astype(np.float32)
    return np.asarray(np.nextafter(rounded, np.float32(np.inf)), np.float64)
