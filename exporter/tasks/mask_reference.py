"""The reference of the masks of task detect: from a network's grids to pixels of the photo, with NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor
from typing import NamedTuple

import numpy as np

from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.tasks import resampling
from savedmodel_bakery.exporter.tasks.mask_settings import MaskSettings
from savedmodel_bakery.exporter.tasks.task import Doubt, Tolerance

LEAST_SIDE = 1e-9
"""The side of a box in pixels that counts as none, so that positions in it are finite."""

_NEAR = 0.01  # pixels from the edge of a box within which a pixel may be in it or not
_ROUNDING = 1e-4  # of the largest value of a mask, by which two runs may differ


class ExpectedMask(NamedTuple):
    """The part of a mask in its box."""

    top: int  # its first row of the photo
    left: int
    margins: np.ndarray  # by how much the values are above the threshold, float64 [height, width]
    rounding: float  # by which they may differ at least


def expected_mask(
    settings: MaskSettings,
    preprocessing: Preprocessing,
    outputs: Mapping[str, np.ndarray],
    row: int,
    box: np.ndarray,
    size: tuple[int, int],
) -> ExpectedMask:
    """Return the mask of one of the network's boxes, whose edges in pixels of the photo, of `size`, are `box`.

    A mask is interpolated bilinearly at the centres of the pixels, and covers those in its box. Sources:

    - of a box, in the Object Detection API: `reframe_box_masks_to_image_masks` in object_detection/utils/ops.py, by
      which the centres of the outer pixels of the photo, and of the outer cells of the mask, are on the edges;
    - of a box, elsewhere: `paste_masks_in_image` of Detectron2 in layers/mask_ops.py, by which cells are areas, as
      pixels are;
    - of the input: `process_mask_native` of Ultralytics in utils/ops.py, which cuts masks after enlarging them.
    """
    grid = outputs["masks"][row].astype(np.float64)
    if "prototypes" in outputs:
        grid = outputs["prototypes"].astype(np.float64) @ grid
    rounding = _ROUNDING * float(np.abs(grid).max(initial=0))
    whole = None
    if settings.area == "input":
        grid, whole = resampling.crop_expected(grid, size, preprocessing)
    pixels, positions, is_sure = [], [], []
    for axis, (length, cells) in enumerate(zip(size, grid.shape, strict=True)):
        low, high = box[axis], box[axis + 2]
        if settings.is_corner_aligned:
            low, high = (edge * (length - 1) / length for edge in (low, high))
        else:
            low, high = low - 0.5, high - 0.5
        own = np.arange(max(ceil(low - _NEAR), 0), min(floor(high + _NEAR), length - 1) + 1)
        part = (own - low) / max(high - low, LEAST_SIDE)
        pixels.append(own)
        is_sure.append((own >= low + _NEAR) & (own <= high - _NEAR))
        if whole is not None:
            positions.append(whole[axis][own])
        else:
            positions.append(part * (cells - 1) if settings.is_corner_aligned else part * cells - 0.5)
    margins = resampling.interpolate_expected(grid, positions) - settings.threshold
    in_doubt = ~np.logical_and.outer(*is_sure)
    margins[in_doubt] = np.minimum(margins[in_doubt], 0)
    top, left = (int(own[0]) if own.size else 0 for own in pixels)
    return ExpectedMask(top, left, margins, rounding)


def mask_iou(actual: np.ndarray, expected: ExpectedMask, tolerance: Tolerance) -> float:
    """Return the intersection of two masks over their union; 1 if both are empty.

    The `actual` one is bool [height, width] of the photo. A pixel may be in both or in none of them if its value is
    within tolerance of the threshold.
    """
    allowed = max(tolerance.atol, expected.rounding)
    height, width = expected.margins.shape
    within = actual[expected.top : expected.top + height, expected.left : expected.left + width]
    missing = np.count_nonzero((expected.margins > allowed) & ~within)
    allowed_pixels = np.count_nonzero(within & (expected.margins > -allowed))
    pixels = np.count_nonzero(actual)
    union = pixels + missing
    return 1.0 if union == 0 else allowed_pixels / union


def doubts(settings: MaskSettings, outputs: Mapping[str, np.ndarray]) -> tuple[Doubt, ...]:
    """Return the doubt that the threshold is for other values: for probabilities, or for logits."""
    masks = outputs["masks"]
    if "prototypes" in outputs or not masks.size:
        return ()
    lowest, highest = float(masks.min()), float(masks.max())
    values = f"from {lowest:.3g} to {highest:.3g}"
    is_fraction = lowest >= 0 and highest <= 1
    if is_fraction and settings.threshold <= 0:
        reason = "the values of the masks are from 0 to 1 like probabilities, and all above mask_threshold"
        return (Doubt(reason, values, "if they are probabilities, bake with --mask-threshold 0.5"),)
    if not is_fraction and 0 < settings.threshold < 1:
        reason = "the values of the masks are not from 0 to 1 like probabilities"
        return (Doubt(reason, values, "if they are logits, bake with --mask-threshold 0"),)
    return ()
