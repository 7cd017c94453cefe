"""Resamples a network's output to the pixels of the upright photo, in the graph and with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.image.framing import Placement
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.tasks.task import placement_of
from savedmodel_bakery.exporter.tensor_types import Side, Tensor

# Values that are interpolated at one time. A photo's values can take gigabytes, its file takes few bytes per pixel.
_BAND_VALUES = 2**22


class Resampled(NamedTuple):
    """A side of a photo's part of a grid."""

    first: Side  # its first cell in the grid
    end: Side
    positions: Tensor  # of the photo's pixels in that part, float64; 0 is the centre of its first cell


def resample(grid: Tensor, placement: Placement, preprocessing: Preprocessing) -> tuple[Resampled, Resampled]:
    """Return which rows and columns of a grid [height, width, …] belong to one photo, and where its pixels lie there.

    The grid covers the network's input, in which the photo has its `placement`.
    """
    window = placement.window
    rows, columns = (
        _resampled(*sides)
        for sides in zip(
            (placement.height, placement.width),
            (window.top, window.left),
            (window.height, window.width),
            preprocessing.size,
            grid.shape[:2],
            strict=True,
        )
    )
    return rows, columns


def _resampled(length: Side, start: Side, fitted: Side, whole: int, size: int) -> Resampled:
    """Return the part of a side of a grid.

    The photo's side of `length` pixels is from `start` in the network's input, with `fitted` pixels of `whole`; that of
    the grid has `size`.
    """
    first, end = start * size // whole, -(-(start + fitted) * size // whole)
    zoom = tf.cast(fitted, tf.float64) / tf.cast(length, tf.float64)
    in_input = tf.cast(start, tf.float64) + (tf.range(tf.cast(length, tf.float64), dtype=tf.float64) + 0.5) * zoom
    return Resampled(first, end, in_input * (size / whole) - 0.5 - tf.cast(first, tf.float64))


def nearest(positions: Tensor, part: Resampled) -> Tensor:
    """Return the cells that are nearest to positions."""
    return tf.clip_by_value(tf.cast(tf.floor(positions + 0.5), tf.int64), 0, part.end - part.first - 1)


def interpolator(part: Tensor, rows: Resampled, columns: Resampled) -> Callable[[Side, Side], Tensor]:
    """Return a function that interpolates a photo's part of a grid, [height, width, channels], bilinearly.

    Its arguments are the first and the end of some rows of the photo. Beyond the outer cells, values stay the same.
    """
    padded = tf.pad(part, [[1, 1], [1, 1], [0, 0]], "SYMMETRIC")
    return lambda first, end: _interpolate(padded, rows.positions[first:end] + 1, columns.positions + 1)


def _interpolate(grid: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Interpolate a grid [height, width, channels] bilinearly at evenly spaced rows and columns."""
    # crop_and_resize states the first and the last position as parts of the distance between the outer cells.
    top, bottom, left, right = (
        position / tf.cast(size - 1, tf.float64)
        for positions, size in zip((rows, columns), tf.unstack(tf.shape(grid)[:2]), strict=True)
        for position in (positions[0], positions[-1])
    )
    box = tf.cast(tf.stack([[top, left, bottom, right]]), tf.float32)
    size = tf.stack([tf.size(rows), tf.size(columns)])
    return tf.image.crop_and_resize(grid[tf.newaxis], box, [0], size)[0]


def in_bands(
    placement: Placement,
    per_pixel: int,
    compute: Callable[[Side, Side, Tensor], tuple[Tensor, Tensor]],
    spec: tf.TensorSpec,
    state: Tensor,
) -> tuple[Tensor, Tensor]:
    """Compute the pixels of a photo in bands of rows, one after the other, and join them.

    Args:
        placement: where one photo is in the network's input.
        per_pixel: the number of values that are computed for a pixel.
        compute: a function of the first row, the end and a state, which returns the pixels of these rows and the next
            state.
        spec: the dtype and the shape of the pixels.
        state: the state before the first band.
    """
    rows_at_once = tf.maximum(_BAND_VALUES // (placement.width * per_pixel), 1)

    def add_band(first: Side, number: Tensor, bands: Tensor, state: Tensor) -> tuple[Side, Tensor, Tensor, Tensor]:
        end = tf.minimum(first + rows_at_once, placement.height)
        band, state = compute(first, end, state)
        return end, number + 1, bands.write(number, band), state

    bands = tf.TensorArray(spec.dtype, size=0, dynamic_size=True, infer_shape=False, element_shape=spec.shape)
    _, _, bands, state = tf.while_loop(
        lambda first, *_: first < placement.height,
        add_band,
        (tf.constant(0, tf.int64), tf.constant(0), bands, state),
        parallel_iterations=1,
    )
    return bands.concat(), state


def crop_expected(
    grid: np.ndarray, size: tuple[int, int], preprocessing: Preprocessing
) -> tuple[np.ndarray, Sequence[np.ndarray]]:
    """Return a photo's part of a grid, and where the rows and the columns of the photo, of this size, lie there."""
    positions = []
    place = placement_of(size, preprocessing)
    for axis, (length, start, fitted, whole) in enumerate(zip(*place, preprocessing.size, strict=True)):
        cells = grid.shape[axis]
        first, end = start * cells // whole, -(-(start + fitted) * cells // whole)
        grid = grid.take(range(first, end), axis)
        positions.append((start + (np.arange(length) + 0.5) * fitted / length) * cells / whole - 0.5 - first)
    return grid, positions


def interpolate_expected(grid: np.ndarray, positions: Sequence[np.ndarray]) -> np.ndarray:
    """Interpolate a grid bilinearly at the positions of rows and columns."""
    rows, columns = positions
    return np.asarray(_lerp(_lerp(grid, rows).swapaxes(0, 1), columns).swapaxes(0, 1))


def _lerp(values: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Interpolate along the first axis."""
    lower = np.floor(positions).astype(int)
    weights = np.expand_dims(positions - lower, tuple(range(1, values.ndim)))
    first, second = (values[np.clip(index, 0, len(values) - 1)] for index in (lower, lower + 1))
    return np.asarray(first * (1 - weights) + second * weights)
