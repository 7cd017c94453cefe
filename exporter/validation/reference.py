"""The reference pipeline: from a photo's file to the network's input, with Pillow and NumPy alone.

It shares nothing with the image graph but the recipe, so that a mistake in either of them shows as a difference. Must
not know TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps

from savedmodel_bakery.errors import ParityError
from savedmodel_bakery.exporter.recipe import LETTERBOX, Preprocessing
from savedmodel_bakery.exporter.tasks.task import placement_of
from savedmodel_bakery.exporter.validation import resampling

_TRANSPOSED = (5, 6, 7, 8)  # EXIF orientations that swap height and width


def read_upright(photo: Path, preprocessing: Preprocessing) -> Image.Image:
    """Read a photo as upright RGB of 8 bits each, on the recipe's background where it is transparent.

    Raises:
        ParityError: Pillow can't read the photo.
    """
    with _reading(photo), Image.open(photo) as opened:
        picture = ImageOps.exif_transpose(opened)
        if picture.mode.startswith("I"):  # 16 bits of gray, which Pillow would clip at 255
            gray = np.asarray(picture)
            levels = (gray >> 8).astype(np.uint8)
            alpha = np.where(gray == picture.info.get("transparency"), 0, 255).astype(np.uint8)
            picture = Image.merge("LA", [Image.fromarray(levels), Image.fromarray(alpha)])
        if not picture.has_transparency_data:
            return picture.convert("RGB")
        canvas = Image.new("RGBA", picture.size, (*preprocessing.background_colour, 255))
        return Image.alpha_composite(canvas, picture.convert("RGBA")).convert("RGB")


def upright_size(photo: Path, preprocessing: Preprocessing) -> tuple[int, int]:
    """Return the height and width of a photo as the recipe turns it, from its header.

    Raises:
        ParityError: Pillow can't read the photo.
    """
    with _reading(photo), Image.open(photo) as opened:
        orientation = opened.getexif().get(ExifTags.Base.Orientation, 1)
        is_swapped = preprocessing.orientation == "exif" and orientation in _TRANSPOSED
        return opened.size if is_swapped else (opened.height, opened.width)


@contextmanager
def _reading(photo: Path) -> Iterator[None]:
    """Name the photo that Pillow can't read."""
    try:
        yield
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ParityError(f"cannot read the photo {photo}: {error}") from error


def fit(picture: Image.Image, preprocessing: Preprocessing) -> np.ndarray:
    """Crop and resize: float32 [*size, 3] in R, G, B, 0..255, or slightly beyond where the kernel overshoots."""
    levels = np.asarray(picture)
    height, width, _ = levels.shape
    if preprocessing.crop_fraction is not None:
        side = max(int(min(height, width) * preprocessing.crop_fraction), 1)
        top, left = -((side - height) // 2), -((side - width) // 2)  # half of an odd margin is rounded up
        levels = levels[top : top + side, left : left + side]
    if preprocessing.crop != LETTERBOX:
        return _resize(levels, preprocessing.size, preprocessing)
    _, (top, left), fitted = placement_of((height, width), preprocessing)
    canvas = np.full((*preprocessing.size, 3), preprocessing.padding_colour, np.float32)
    canvas[top : top + fitted[0], left : left + fitted[1]] = _resize(levels, fitted, preprocessing)
    return canvas


def _resize(levels: np.ndarray, size: tuple[int, int], preprocessing: Preprocessing) -> np.ndarray:
    resized = resampling.resize(levels, size, method=preprocessing.resize, antialias=preprocessing.antialias)
    return resized.astype(np.float32)


def normalise(pixels: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Normalise `pixels` [batch, height, width, 3]: float32 [batch, height, width, channels]."""
    mean, std = (np.array(triple, np.float32) for triple in preprocessing.mean_and_std)
    if preprocessing.channels == "GRAY":  # ITU-R BT.601
        luma = pixels @ np.array([[0.299], [0.587], [0.114]], np.float32)
        return np.asarray((luma - mean[0]) / std[0])
    scaled = (pixels - mean) / std
    return np.asarray(scaled[..., ::-1] if preprocessing.channels == "BGR" else scaled)
