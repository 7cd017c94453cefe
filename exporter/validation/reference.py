"""The reference pipeline: from a photo's file to the network's input, without TensorFlow.

Pillow decodes, but for what it can't: libjpeg-turbo's fast DCT (simplejpeg), and all 16 bits of a PNG file (pypng). It
shares nothing with the image graph but the recipe, so that a mistake in either of them shows as a difference.

It resizes by the definitions of the kernels: each row of the output is a weighted mean of rows of the input, and each
column one of columns; output sample i is at (i + 1/2) · scale in the input, input sample j at j + 1/2. Antialiasing
widens the kernel by the scale when the image is made smaller. (Kernels: Keys 1981 with a = -1/2; Mitchell and Netravali
1988 with B = C = 1/3; Lanczos.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import png
import simplejpeg
from PIL import ExifTags, Image, ImageOps

from savedmodel_bakery.errors import ParityError
from savedmodel_bakery.exporter.recipe import MAX_WHITE, PADDED, Preprocessing
from savedmodel_bakery.exporter.tasks.task import placement_of

LUMA = np.array([[0.299], [0.587], [0.114]])  # of R, G and B in gray (ITU-R BT.601)
_BIT_DEPTH = 24  # its place in a PNG file (third edition, 11.2.1)
_TRANSPOSED = (5, 6, 7, 8)  # EXIF orientations that swap height and width


def read_upright(photo: Path, preprocessing: Preprocessing) -> Image.Image:
    """Read a photo as RGB of 8 bits each, turned and without transparency as the recipe says."""
    with reading(photo), Image.open(photo) as opened:
        picture = _decode(photo, opened, preprocessing)
        if preprocessing.orientation == "exif":
            picture = ImageOps.exif_transpose(picture)
        if picture.mode.startswith("I"):  # 16 bits of gray, which Pillow would clip at 255
            gray = np.asarray(picture)
            levels = (gray >> 8).astype(np.uint8)
            alpha = np.where(gray == picture.info.get("transparency"), 0, 255).astype(np.uint8)
            picture = Image.merge("LA", [Image.fromarray(levels), Image.fromarray(alpha)])
        if not picture.has_transparency_data:
            return picture.convert("RGB")
        if preprocessing.alpha == "drop" and opened.format != "GIF":  # there, no colour is below
            return picture.convert("RGBA").convert("RGB")
        canvas = Image.new("RGBA", picture.size, (*preprocessing.background_colour, 255))
        return Image.alpha_composite(canvas, picture.convert("RGBA")).convert("RGB")


def _decode(photo: Path, opened: Image.Image, preprocessing: Preprocessing) -> Image.Image:
    """Return the picture of a photo that Pillow has opened; with its EXIF orientation."""
    if opened.format in ("JPEG", "MPO") and preprocessing.jpeg_dct == "fast":
        colours = {"L": "GRAY"}.get(opened.mode, opened.mode)
        levels = simplejpeg.decode_jpeg(photo.read_bytes(), colours, fastdct=True)
        decoded = Image.fromarray(levels.squeeze()) if opened.mode != "CMYK" else Image.fromarray(255 - levels, "CMYK")
    elif preprocessing.white != MAX_WHITE and _is_deep(photo, opened):
        width, height, rows, _ = png.Reader(bytes=photo.read_bytes()).asRGBA()
        rgba = np.reshape(list(rows), (height, width, 4)) / ([preprocessing.white] * 3 + [MAX_WHITE])
        decoded = Image.fromarray((255 * np.minimum(rgba, 1)).round().astype(np.uint8))
    else:
        return opened
    decoded.getexif()[ExifTags.Base.Orientation] = opened.getexif().get(ExifTags.Base.Orientation, 1)
    return decoded


def highest_level(photo: Path) -> int | None:
    """Return the highest level of a photo with 16 bits per colour, of which `white` says the range; None for others."""
    with reading(photo), Image.open(photo) as opened:
        if not _is_deep(photo, opened):
            return None
        _, _, rows, _ = png.Reader(bytes=photo.read_bytes()).asRGBA()
        return int(max(max(max(row[colour::4]) for colour in range(3)) for row in rows))


def _is_deep(photo: Path, opened: Image.Image) -> bool:
    return opened.format == "PNG" and photo.read_bytes()[_BIT_DEPTH] == 16


def upright_size(photo: Path, preprocessing: Preprocessing) -> tuple[int, int]:
    """Return the height and width of a photo as the recipe turns it, from its header."""
    with reading(photo), Image.open(photo) as opened:
        orientation = opened.getexif().get(ExifTags.Base.Orientation, 1)
        is_swapped = preprocessing.orientation == "exif" and orientation in _TRANSPOSED
        return opened.size if is_swapped else (opened.height, opened.width)


@contextmanager
def reading(photo: Path) -> Iterator[None]:
    """Name the photo that Pillow can't read."""
    try:
        yield
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, png.Error) as error:
        raise ParityError(f"cannot read the photo {photo}: {error}") from error


def fit(picture: Image.Image, preprocessing: Preprocessing) -> np.ndarray:
    """Crop and resize: float32 [*size, 3] in R, G, B, 0..255, or slightly beyond where the kernel overshoots."""
    levels = np.asarray(picture)
    height, width, _ = levels.shape
    if preprocessing.crop_fraction is not None:
        side = max(int(min(height, width) * preprocessing.crop_fraction), 1)
        top, left = (_half(whole - side, preprocessing) for whole in (height, width))
        levels = levels[top : top + side, left : left + side]
    if preprocessing.short_side is not None:
        return _resize_centre(levels, preprocessing, preprocessing.short_side)
    if preprocessing.crop == PADDED:
        return _resize_padded(levels, preprocessing)
    if preprocessing.letterbox_rounding is None:
        return resize(levels, preprocessing.size, preprocessing.resize, antialias=preprocessing.antialias)
    _, (top, left), fitted = placement_of((height, width), preprocessing)
    canvas = np.full((*preprocessing.size, 3), preprocessing.padding_colour, np.float32)
    resized = resize(levels, fitted, preprocessing.resize, antialias=preprocessing.antialias)
    canvas[top : top + fitted[0], left : left + fitted[1]] = resized
    return canvas


def _resize_centre(levels: np.ndarray, preprocessing: Preprocessing, short_side: int) -> np.ndarray:
    """Make the shorter side `short_side` long, and return the centre."""
    shorter = min(levels.shape[:2])
    lengths = [int(short_side * length / shorter) for length in levels.shape[:2]]
    starts = [_half(length - side, preprocessing) for length, side in zip(lengths, preprocessing.size, strict=True)]
    rows, columns = (
        weights(
            length, resized, preprocessing.resize, antialias=preprocessing.antialias, kept=range(start, start + side)
        )
        for length, resized, start, side in zip(levels.shape[:2], lengths, starts, preprocessing.size, strict=True)
    )
    return _weighted(levels, rows, columns)


def _resize_padded(levels: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Pad to the shape of the network's input, as much on both sides, and resize with the margins."""
    sides, size, parts = levels.shape[:2], preprocessing.size, []
    for side, other, whole, other_whole in zip(sides, sides[::-1], size, size[::-1], strict=True):
        margin = max(int(np.float32(other * whole) / np.float32(other_whole)) - side, 0) // 2
        samples = weights(side + 2 * margin, whole, preprocessing.resize, antialias=False)
        parts.append(samples[:, margin : margin + side])
    colour = np.array(preprocessing.padding_colour)
    return np.asarray(_weighted(levels - colour, *parts) + colour, np.float32)


def _half(margin: int, preprocessing: Preprocessing) -> int:
    """Return half of a margin, rounded as the recipe says."""
    half = margin / 2
    return {"up": math.ceil(half), "down": math.floor(half), "even": round(half)}[preprocessing.margin_rounding]


def normalise(pixels: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Normalise `pixels` [batch, height, width, 3]: float32 [batch, height, width, channels]."""
    mean, std = (np.array(triple, np.float32) for triple in preprocessing.mean_and_std)
    if preprocessing.channels == "GRAY":
        luma = pixels @ LUMA.astype(np.float32)
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
    return _weighted(pixels, rows, columns)


def _weighted(pixels: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    used_rows, used_columns = rows.any(axis=0), columns.any(axis=0)
    used = pixels[used_rows][:, used_columns].astype(np.float64)
    resized = np.einsum("ih,hwc,jw->ijc", rows[:, used_rows], used, columns[:, used_columns], optimize=True)
    return np.asarray(resized, np.float32)


def weights(length: int, output_length: int, method: str, *, antialias: bool, kept: range | None = None) -> np.ndarray:
    """Return the weights of input samples in each output sample: float64 [output_length, length], rows add up to 1.

    With `kept`, returns only the rows of these output samples.
    """
    scale = length / output_length
    first, end = (kept.start, kept.stop) if kept else (0, output_length)
    edges = np.arange(first, end + 1) * scale
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
