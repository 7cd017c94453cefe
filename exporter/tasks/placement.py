"""Where a photo lies in the network's input, computed with Python's integers; see `image.framing` for the graph's."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import NamedTuple

import numpy as np

from savedmodel_bakery.exporter.recipe import LETTERBOX, Preprocessing


class Placement(NamedTuple):
    """Where a photo lies in the network's input.

    Attributes:
        size: height and width of the upright photo.
        corner: its distance from the top and from the left of the network's input, in pixels of that.
        fitted: its height and width there.
    """

    size: tuple[int, int]
    corner: tuple[int, int]
    fitted: tuple[int, int]

    def to_photo(self, box: np.ndarray) -> np.ndarray:
        """Convert a box [4] from the network's input to the photo, and clip it."""
        corner, fitted, size = (
            np.tile(np.array(sides, np.float64), 2) for sides in (self.corner, self.fitted, self.size)
        )
        return np.clip((box - corner) / fitted * size, 0, size)


def placement_of(size: tuple[int, int], preprocessing: Preprocessing) -> Placement:
    """Return the placement of an upright photo, for recipes that don't crop."""
    if preprocessing.crop != LETTERBOX:
        return Placement(size, (0, 0), preprocessing.size)
    zoom = min(Fraction(most, side) for most, side in zip(preprocessing.size, size, strict=True))
    height, width = (max(floor(side * zoom + Fraction(1, 2)), 1) for side in size)
    max_height, max_width = preprocessing.size
    return Placement(size, ((max_height - height) // 2, (max_width - width) // 2), (height, width))
