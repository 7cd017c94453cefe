"""Encodes images as the inputs of a baked model: from paths, bytes, files, Pillow images and arrays. Sends nothing."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np

from savedmodel_bakery.extras import naming_extras
from savedmodel_bakery.wire.dtypes import object_array

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

Image: TypeAlias = "str | PathLike[str] | bytes | BinaryIO | np.ndarray | PilImage"
"""An image: the path, content or binary file object of an image file; a Pillow image; or an array, see `read_image`."""

URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)  # C:// is a path on Windows
_HEIC = re.compile(rb".{4}ftyp(?:hei|hev|mif1)", re.DOTALL)
_AVIF_OR_TIFF = re.compile(rb".{4}ftypavi|II\*\0|MM\0\*", re.DOTALL)
_DEEP_PNG = re.compile(rb"\x89PNG.{20}\x10", re.DOTALL)  # the bits of a level (PNG, 11.2.1)
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
_SINGLE = (str, bytes, bytearray, memoryview, PathLike, Mapping)  # that are iterables, but not of images
_ALPHA_MODES = {"PA": "RGBA", "RGBa": "RGBA", "La": "LA"}


def encode_images(images: Sequence[bytes]) -> dict[str, np.ndarray]:
    """Return the input of the signatures for encoded images: `image`, object [batch]."""
    return {"image": object_array(images)}


def list_images(images: Any) -> list[Any] | None:
    """Return the images of a batch, which are not checked; None for a single image.

    A batch is a list, tuple, generator or other iterable, or an array with an axis for the images: [n, height, width,
    3] or [n, height, width, 1].
    """
    is_image = isinstance(images, _SINGLE) or hasattr(images, "read") or getattr(images, "ndim", None) in (2, 3)
    if is_image or not isinstance(images, Iterable):
        return None
    return list(images)


def read_image(image: Image) -> bytes | np.ndarray:
    """Return an image as an encoded image file; an array, or what converts to one, as uint8 [height, width, 3].

    An array must be uint8 [height, width, 3], or gray: [height, width] or [height, width, 1].

    Raises TypeError for another type, and ValueError for a URL, an array of another dtype or shape, and a Pillow image
    of floats or out of 16 bits.
    """
    if isinstance(image, bytes):
        return convert_photo(image)
    if isinstance(image, str | PathLike):
        if isinstance(image, str) and URL.match(image):
            raise ValueError(
                f'invalid image "{image}": URLs are not fetched; pass a path, or the bytes of the image file'
            )
        return convert_photo(Path(image).read_bytes())
    if hasattr(image, "__array__"):
        return _as_rgb(np.asarray(image))
    pillow = sys.modules.get("PIL.Image")  # the caller has imported it if this is one of its images
    if pillow is not None and isinstance(image, pillow.Image):
        return _encode_pillow(image)
    if callable(read := getattr(image, "read", None)):
        content = read()
        if isinstance(content, bytes):
            return convert_photo(content)
        raise TypeError(f"an image file must be opened in binary mode; read() returned {type(content).__name__}")
    raise TypeError(
        "an image must be a path, bytes, a binary file object, a Pillow image or a uint8 array, "
        f"not {type(image).__name__}"
    )


def _as_rgb(array: np.ndarray) -> np.ndarray:
    """Return an array of an image as uint8 [height, width, 3]; ValueError if it is not one."""
    if array.dtype != np.uint8:
        raise ValueError(
            f"invalid image: an array of {array.dtype} {list(array.shape)}; must be uint8, levels 0 to 255, because "
            "the range of other types is not known"
        )
    colours = array[..., np.newaxis] if array.ndim == 2 else array
    if colours.ndim != 3 or colours.shape[2] not in (1, 3) or not array.size:
        advice = "; one with alpha as a Pillow image, Image.fromarray(array)" if colours.shape[2:] == (4,) else ""
        raise ValueError(
            f"invalid image: an array of uint8 {list(array.shape)}; must be [height, width, 3], or [height, width] or "
            f"[height, width, 1] if gray{advice}"
        )
    return np.repeat(colours, 3, axis=2) if colours.shape[2] == 1 else colours


def convert_photo(content: bytes) -> bytes:
    """Return a photo in HEIC, AVIF or TIFF, which TensorFlow can't decode, as an upright PNG file; others as they are.

    Also one that can't be converted, such as without Pillow (extra `draw`) or for HEIC pillow-heif (extra `heif`): the
    model's error names its format. Of several pictures in a file, it is the first.
    """
    is_heic = _HEIC.match(content) is not None
    if not is_heic and not _AVIF_OR_TIFF.match(content):
        return content
    try:
        from PIL import Image

        if is_heic:
            import pillow_heif

            pillow_heif.register_heif_opener()
        with Image.open(io.BytesIO(content)) as image:
            return _encode_pillow(image)
    except Exception:  # decoders raise all types of errors
        return content


def to_srgb(photo: bytes) -> bytes:
    """Return a photo with another ICC profile than sRGB as an upright PNG file in sRGB; others as they are.

    TensorFlow reads the levels in a file whatever its profile says, and networks are trained on photos that are nearly
    all sRGB. Photos of 16 bits stay as they are, because Pillow converts 8 bits only; so do damaged ones.

    Examples:
        >>> from pathlib import Path
        >>> from savedmodel_bakery import to_srgb
        >>> photo = Path("examples/coffee.png").read_bytes()  # without an ICC profile
        >>> to_srgb(photo) == photo
        True

    Raises:
        MissingPackageError: the extra `draw` is not installed.
    """
    with naming_extras("photos with ICC profiles", "draw"):
        from PIL import Image, ImageCms, ImageOps
    content = convert_photo(photo)
    if _DEEP_PNG.match(content):
        return content
    try:
        with Image.open(io.BytesIO(content)) as opened:
            if "icc_profile" not in opened.info:
                return content
            profile = ImageCms.ImageCmsProfile(io.BytesIO(opened.info["icc_profile"]))
            if ImageCms.getProfileDescription(profile).startswith("sRGB"):
                return content
            if opened.mode.startswith(("I", "F")):
                return content
            image = ImageOps.exif_transpose(opened)
            colours = image if image.mode in ("RGB", "L", "CMYK") else image.convert("RGB")
            converted = ImageCms.profileToProfile(
                colours,
                profile,
                ImageCms.createProfile("sRGB"),
                renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
                outputMode="RGB",
            )
            assert converted
            if image.has_transparency_data:
                converted.putalpha(image.convert("RGBA").getchannel("A"))
            return _encode_pillow(converted)
    except Exception:  # decoders raise all types of errors
        return content


def encode_png(array: np.ndarray) -> bytes:
    """Return an array, uint8 [height, width, 3], as a PNG file. Needs the extra `draw`."""
    with naming_extras("an image as an array", "draw"):
        from PIL import Image
    return _encode_pillow(Image.fromarray(np.ascontiguousarray(array)))


def _encode_pillow(image: Any) -> bytes:
    """Return a Pillow image as a PNG file, upright, because Pillow does not keep its orientation in the file."""
    from PIL import ImageOps

    with suppress(SyntaxError):  # its EXIF data are damaged
        image = ImageOps.exif_transpose(image)
    image = _in_png_mode(image)
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def _in_png_mode(image: Any) -> Any:
    """Return a Pillow image in a mode that PNG files have; integers of 32 bits become 8 or 16 bits, unchanged."""
    if image.mode in _PNG_MODES:
        return image
    if not all(image.size):
        raise ValueError(f"invalid image: a Pillow image of {image.width} by {image.height} pixels; must have pixels")
    if image.mode.startswith("I"):
        integers = image.convert("I")
        low, high = integers.getextrema()
        if low < 0 or high > 65535:
            raise ValueError(f"invalid image: a Pillow image of mode I with values {low} to {high}; must be 0 to 65535")
        return integers.convert("L" if image.mode == "I" and high <= 255 else "I;16")
    if image.mode == "F":
        raise ValueError(
            "invalid image: a Pillow image of mode F; must have integers, as in modes L and RGB, because the range of "
            "floats is not known"
        )
    return image.convert(_ALPHA_MODES.get(image.mode, "RGB"))
