"""The reference pipeline: from a photo's file to the network's input, with Pillow and NumPy alone.

It shares nothing with the image graph but the recipe, so that a mistake in either of them shows as a difference. Must
not know TensorFlow.

It resizes by the definitions of the kernels: each row of the output is a weighted mean of rows of the input, and each
column one of columns; output sample i is at (i + 1/2) · scale in the input, input sample j at j + 1/2. Antialiasing
widens the kernel by the scale when the image is made smaller. (Kernels: Keys 1981 with a = -1/2; Mitchell and Netravali
1988 with B = C = 1/3; Lanczos.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps

from savedmodel_bakery.errors import ParityError
from savedmodel_bakery.exporter.recipe import LETTERBOX, Preprocessing
from savedmodel_bakery.exporter.tasks.task import placement_of

_TRANSPOSED = (5, 6, 7, 8)  # EXIF orientations that swap height and width


def read_upright(photo: Path, preprocessing: Preprocessing) -> Image.Image:
    """Read a photo as upright RGB of 8 bits each, on the recipe's background where it is transparent."""
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
    """Return the height and width of a photo as the recipe turns it, from its header."""
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
        return resize(levels, preprocessing.size, preprocessing.resize, antialias=preprocessing.antialias)
    _, (top, left), fitted = placement_of((height, width), preprocessing)
    canvas = np.full((*preprocessing.size, 3), preprocessing.padding_colour, np.float32)
    resized = resize(levels, fitted, preprocessing.resize, antialias=preprocessing.antialias)
    canvas[top : top + fitted[0], left : left + fitted[1]] = resized
    return canvas


def normalise(pixels: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Normalise `pixels` [batch, height, width, 3]: float32 [batch, height, width, channels]."""
    mean, std = (np.array(triple, np.float32) for triple in preprocessing.mean_and_std)
    if preprocessing.channels == "GRAY":  # ITU-R BT.601
        luma = pixels @ np.array([[0.299], [0.587], [0.114]], np.float32)
        return np.asarray((luma - mean[0]) / std[0])
    scaled = (pixels - mean) / std
    return np.asarray(scaled[..., ::-1] if preprocessing.channels == "BGR" else scaled)


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


def resize(pixels: np.ndarray, size: tuple[int, int], method: str, *, antialias: bool) -> np.ndarray:
    """Resize `pixels` [height, width, channels] to `size` (height, width): float32 [*size, channels], not rounded."""
    rows, columns = (
        weights(length, output_length, method, antialias=antialias)
        for length, output_length in zip(pixels.shape[:2], size, strict=True)
    )
    resized = np.einsum("ih,hwc,jw->ijc", rows, pixels.astype(np.float64), columns, optimize=True)
    return np.asarray(resized, np.float32)


def weights(length: int, output_length: int, method: str, *, antialias: bool) -> np.ndarray:
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
