"""Masks of objects in the graph, from a network's grids to run lengths of the upright photo.

A mask is interpolated bilinearly, so along a column of the photo its value is a straight line between two cells of the
grid. Only the pixels at which it crosses the threshold are computed, never the pixels of a mask.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from savedmodel_bakery.exporter.image import framing
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.tasks import resampling
from savedmodel_bakery.exporter.tasks.mask_reference import LEAST_SIDE
from savedmodel_bakery.exporter.tasks.mask_settings import MaskSettings
from savedmodel_bakery.exporter.tasks.run_lengths import encode_changes
from savedmodel_bakery.exporter.tensor_types import Boxes, NetworkOutputs, Side, Tensor, Text

# Values that are interpolated at one time; a photo may have 65,535 columns.
_BAND_VALUES = 2**20


class _Axis(NamedTuple):
    """The pixels of a photo that a box covers, along one of its sides."""

    first: Side
    positions: Tensor  # of their centres in the mask, float64 [pixels], ascending; 0 is the centre of its first cell


def encode_masks(
    settings: MaskSettings,
    preprocessing: Preprocessing,
    outputs: NetworkOutputs,
    rows: Tensor,
    boxes: Boxes,
    counts: Tensor,
    sizes: Tensor,
) -> Tensor:
    """Return the run lengths of the masks of boxes, string [images, boxes]; empty beyond the `counts` of the images.

    Args:
        settings: what the masks cover, and which pixels they have.
        preprocessing: how the photos were placed in the network's input.
        outputs: the outputs of the network, by role.
        rows: the positions of the boxes among those of the network, int32 [images, boxes].
        boxes: the boxes in pixels of the photos; they may extend beyond these.
        counts: the number of boxes of each image, int32 [images].
        sizes: the heights and widths of the upright photos, int64 [images, 2].
    """
    grids = {role: outputs[role] for role in ("masks", "prototypes") if role in outputs}

    def encode_image(image: tuple[NetworkOutputs, Tensor, Boxes, Tensor, framing.Placement]) -> Tensor:
        own, rows, boxes, count, placement = image

        def encode_box(number: Tensor) -> Text:
            grid = own["masks"][rows[number]]
            if "prototypes" in own:
                grid = tf.tensordot(own["prototypes"], grid, 1)
            return _encode(settings, preprocessing, grid, boxes[number], placement)

        texts = tf.map_fn(
            encode_box, tf.range(count), fn_output_signature=tf.TensorSpec([], tf.string), parallel_iterations=1
        )
        return tf.concat([texts, tf.fill([tf.shape(boxes)[0] - count], "")], axis=0)

    return tf.map_fn(
        encode_image,
        (grids, rows, boxes, counts, framing.place(sizes, preprocessing)),
        fn_output_signature=tf.TensorSpec([boxes.shape[1]], tf.string),
        parallel_iterations=1,
    )


def _encode(
    settings: MaskSettings, preprocessing: Preprocessing, grid: Tensor, box: Boxes, placement: framing.Placement
) -> Text:
    """Return the run lengths of the mask of one box, from its values [height, width]."""
    photo = placement.height, placement.width
    if settings.area == "input":
        parts = resampling.resample(grid, placement, preprocessing)
        grid = grid[parts[0].first : parts[0].end, parts[1].first : parts[1].end]
        whole = [part.positions for part in parts]
    else:
        whole = [None, None]
    # The text must be valid, whatever a network returns.
    edges = tf.cast(tf.where(tf.math.is_finite(box), box, 0), tf.float64)
    grid = tf.where(tf.math.is_finite(grid), grid, settings.threshold)
    rows, columns = (
        _axis(settings, edges[side], edges[side + 2], photo[side], tf.shape(grid)[side], whole[side]) for side in (0, 1)
    )
    changes = _find_changes(grid, rows, columns, placement.height, settings.threshold)
    return encode_changes(changes, placement.height * placement.width)


def _axis(
    settings: MaskSettings, low: Tensor, high: Tensor, length: Side, cells: Tensor, whole: Tensor | None
) -> _Axis:
    """Return the pixels between two edges of a box; see `mask_reference.expected_mask` for the rules.

    `whole` has the positions of all pixels of the photo if they don't depend on the box.
    """
    pixels = tf.cast(length, tf.float64)
    if settings.is_corner_aligned:
        low, high = (edge * (pixels - 1) / pixels for edge in (low, high))
    else:
        low, high = low - 0.5, high - 0.5
    first = tf.cast(tf.clip_by_value(tf.math.ceil(low), 0, pixels), tf.int64)
    end = tf.cast(tf.clip_by_value(tf.math.floor(high) + 1, 0, pixels), tf.int64)
    if whole is not None:
        return _Axis(first, whole[first:end])
    part = (tf.cast(tf.range(first, tf.maximum(end, first)), tf.float64) - low) / tf.maximum(high - low, LEAST_SIDE)
    size = tf.cast(cells, tf.float64)
    return _Axis(first, part * (size - 1) if settings.is_corner_aligned else part * size - 0.5)


def _find_changes(grid: Tensor, rows: _Axis, columns: _Axis, height: Side, threshold: float) -> Tensor:
    """Return the pixels of the photo that differ from the one before; see `run_lengths.encode_changes`."""
    cell_rows, cell_columns = tf.unstack(tf.cast(tf.shape(grid), tf.float64))
    nearest, farthest = (
        tf.clip_by_value(edge, 0, cell_rows - 1)
        for edge in (tf.reduce_min(rows.positions), tf.reduce_max(rows.positions))
    )
    top, bottom = tf.cast(tf.floor(nearest), tf.int32), tf.cast(tf.math.ceil(farthest), tf.int32) + 1
    by_column = tf.transpose(grid[top:bottom])
    positions = rows.positions - tf.cast(top, tf.float64)
    cells = tf.shape(by_column)[1]
    columns_at_once = tf.maximum(_BAND_VALUES // tf.maximum(cells, 1), 1)

    def add_band(start: Tensor, changes: Tensor) -> tuple[Tensor, Tensor]:
        places = tf.clip_by_value(columns.positions[start : start + columns_at_once], 0, cell_columns - 1)
        left = tf.cast(places, tf.int32)
        weight = tf.cast(places - tf.cast(left, tf.float64), tf.float32)[:, tf.newaxis]
        right = tf.minimum(left + 1, tf.shape(by_column)[0] - 1)
        values = tf.gather(by_column, left) * (1 - weight) + tf.gather(by_column, right) * weight
        is_set = tf.pad(values > threshold, [[0, 0], [1, 1]])
        # The state changes between cell - 1 and cell.
        column, cell = tf.unstack(tf.where(tf.not_equal(is_set[:, 1:], is_set[:, :-1])), axis=1)
        last = tf.cast(cells, tf.int64)
        before, after = (
            tf.cast(tf.gather_nd(values, tf.stack([column, each], axis=1)), tf.float64)
            for each in (tf.maximum(cell - 1, 0), tf.minimum(cell, last - 1))
        )
        crossing = tf.cast(cell - 1, tf.float64) + tf.math.divide_no_nan(threshold - before, after - before)
        # A value that is the threshold is not above it.
        first_above, first_not_above = (
            tf.searchsorted(positions, crossing, side=side, out_type=tf.int64) for side in ("right", "left")
        )
        row = tf.where(after > before, first_above, first_not_above)
        row = tf.where(tf.equal(cell, 0), tf.constant(0, tf.int64), row)
        row = tf.where(tf.equal(cell, last), tf.size(positions, tf.int64), row)
        number = columns.first + tf.cast(start, tf.int64) + column
        return start + columns_at_once, tf.concat([changes, number * height + rows.first + row], axis=0)

    _, changes = tf.while_loop(
        lambda start, _: start < tf.size(columns.positions),
        add_band,
        (tf.constant(0), tf.zeros([0], tf.int64)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
        parallel_iterations=1,
    )
    return changes
