"""Resizes in NumPy by the definitions of the kernels, to check tf.image.resize against. Must not know TensorFlow.

Each row of the output is a weighted mean of rows of the input, and each column one of columns; output sample i is at
(i + 1/2) · scale in the input, input sample j at j + 1/2. Antialiasing widens the kernel by the scale when the image is
made smaller. (Kernels: Keys 1981 with a = -1/2; Mitchell and Netravali 1988 with B = C = 1/3; Lanczos.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Kernel = Callable[[np.ndarray], np.ndarray]


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(1 - np.abs(x), 0))


def _cubic(b: float, c: float) -> Kernel:
    """Return a kernel of Mitchell and Netravali's family; Keys' kernel is B = 0, C = -a = 1/2."""

    def kernel(x: np.ndarray) -> np.ndarray:
        x = np.abs(x)
        near = ((12 - 9 * b - 6 * c) * x**3 + (-18 + 12 * b + 6 * c) * x**2 + 6 - 2 * b) / 6
        far = ((-b - 6 * c) * x**3 + (6 * b + 30 * c) * x**2 + (-12 * b - 48 * c) * x + 8 * b + 24 * c) / 6
        return np.where(x < 1, near, np.where(x < 2, far, 0))

    return kernel


def _lanczos(lobes: int) -> Kernel:
    return lambda x: np.where(np.abs(x) < lobes, np.sinc(x) * np.sinc(x / lobes), 0)


def _gaussian(x: np.ndarray) -> np.ndarray:
    """The radius of 3/2 is three standard deviations."""
    return np.where(np.abs(x) < 1.5, np.exp(-(x**2) / (2 * 0.5**2)), 0)


KERNELS: dict[str, Kernel] = {
    "bilinear": _triangle,
    "bicubic": _cubic(0, 1 / 2),
    "mitchellcubic": _cubic(1 / 3, 1 / 3),
    "lanczos3": _lanczos(3),
    "lanczos5": _lanczos(5),
    "gaussian": _gaussian,
}


def resize(pixels: np.ndarray, size: tuple[int, int], *, method: str, antialias: bool) -> np.ndarray:
    """Resize `pixels` [height, width, channels] to `size` (height, width): float64 [*size, channels], not rounded."""
    rows, columns = (
        weights(length, output_length, method=method, antialias=antialias)
        for length, output_length in zip(pixels.shape[:2], size, strict=True)
    )
    return np.asarray(np.einsum("ih,hwc,jw->ijc", rows, pixels.astype(np.float64), columns, optimize=True))


def weights(length: int, output_length: int, *, method: str, antialias: bool) -> np.ndarray:
    """Return the weights of input samples in each output sample: float64 [output_length, length], rows add up to 1."""
    scale = length / output_length
    edges = np.arange(output_length + 1) * scale
    samples = np.arange(length)
    if method == "nearest":
        nearest = np.minimum((edges[:-1] + scale / 2).astype(int), length - 1)
        return np.asarray(samples == nearest[:, np.newaxis], np.float64)
    if method == "area":  # the part of each sample between two edges
        upper = np.minimum(edges[1:, np.newaxis], samples + 1)
        overlap = np.maximum(upper - np.maximum(edges[:-1, np.newaxis], samples), 0)
        return _normalised(overlap)
    stretch = max(scale, 1.0) if antialias else 1.0
    centres = edges[:-1] + scale / 2
    return _normalised(KERNELS[method]((samples + 0.5 - centres[:, np.newaxis]) / stretch))


def _normalised(unscaled: np.ndarray) -> np.ndarray:
    return np.asarray(unscaled / unscaled.sum(axis=1, keepdims=True))
