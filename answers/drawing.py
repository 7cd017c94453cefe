"""Draws boxes, points and maps on photos. Needs the extra `draw`; does no I/O."""

from __future__ import annotations

import colorsys
import io
import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from savedmodel_bakery.label_files import Colour

ScoredBox = tuple[str, float, float, float, float, float]
"""The label and score of a box, and its edges in pixels: ymin, xmin, ymax, xmax."""

Point = tuple[str, float, float]
"""The name of a point, and its place in pixels: y, x."""

_GOLDEN_RATIO = 0.618034  # hues at this distance differ well, however many there are
_PALETTE_SIZE = 256
_OPACITY = 0.5
_MIN_FONT_SIZE, _MAX_FONT_SIZE = 12, 40
_FONT_SHARE = 1 / 30  # of the photo's shorter side


def draw_boxes(
    photo: bytes, boxes: Sequence[ScoredBox], masks: Iterable[np.ndarray | None], colours: Mapping[str, Colour]
) -> bytes:
    """Return a PNG file of the upright photo with boxes, labels and scores, and their translucent masks.

    `boxes` are best first; `masks`, each bool [height, width], are in the opposite order, which is that of drawing.
    Labels without a colour have one that is the same in every photo. Raises ValueError if Pillow cannot read the photo,
    or a mask has another size.
    """
    image = _open_upright(photo)
    font = _font(image)
    for (label, score, ymin, xmin, ymax, xmax), mask in zip(reversed(boxes), masks, strict=True):
        colour = colours.get(label) or label_colour(label)
        if mask is not None:
            _check_size("mask", mask, image)
            image.paste(colour, mask=Image.fromarray(mask * np.uint8(255 * _OPACITY)))
        canvas = ImageDraw.Draw(image)
        edges = (min(xmin, xmax), min(ymin, ymax), max(xmin, xmax), max(ymin, ymax))
        canvas.rectangle(edges, outline=colour, width=max(2, int(font.size) // 8))
        text = f"{label} {score:.2f}"
        place = (edges[0], max(0.0, edges[1] - font.size * 1.2))
        canvas.rectangle(canvas.textbbox(place, text, font=font), fill=colour)
        canvas.text(place, text, fill=(0, 0, 0), font=font)
    return _as_png(image)


def draw_points(
    photo: bytes, points: Sequence[Point], edges: Sequence[tuple[int, int]], colours: Mapping[str, Colour]
) -> bytes:
    """Return a PNG file of the upright photo with points; `edges` are pairs of their numbers, which a line joins.

    Names without a colour have one that depends on their number. Raises ValueError if Pillow cannot read the photo.
    """
    image = _open_upright(photo)
    canvas, width = ImageDraw.Draw(image), max(2, int(_font(image).size) // 8)
    palette = [colours.get(name) or palette_colour(number) for number, (name, _, _) in enumerate(points)]
    places = [(x, y) for _, y, x in points]
    for first, second in edges:
        canvas.line([places[first], places[second]], fill=palette[second], width=width)
    for place, colour in zip(places, palette, strict=True):
        canvas.circle(place, 2 * width, fill=colour, outline=(0, 0, 0))
    return _as_png(image)


def draw_map(
    photo: bytes,
    class_ids: np.ndarray,
    labels: Sequence[str],
    shares: Mapping[str, float],
    colours: Mapping[str, Colour],
) -> bytes:
    """Return a PNG file of the upright photo under its translucent map, with a legend of its classes below.

    `class_ids` is uint8 [height, width]; `labels` are by class id; `shares` are of the pixels, 0 to 1. Labels without a
    colour have one that depends on their class id. Raises ValueError if Pillow cannot read the photo, or the map has
    another size.
    """
    image = _open_upright(photo)
    _check_size("map", class_ids, image)
    names = [*labels, *map(str, range(len(labels), _PALETTE_SIZE))]
    palette = [colours.get(name) or palette_colour(class_id) for class_id, name in enumerate(names)]
    pixels = np.asarray(image, np.float32) * (1 - _OPACITY) + np.array(palette, np.float32)[class_ids] * _OPACITY
    drawn = Image.fromarray(pixels.round().astype(np.uint8))
    present = np.unique(class_ids).tolist()
    legend = [names[number] for number in present], [palette[number] for number in present]
    return _as_png(_add_legend(drawn, *legend, shares))


def label_colour(label: str) -> Colour:
    """Return the colour of a label, RGB 0 to 255, the same in every photo."""
    return palette_colour(zlib.crc32(label.encode()) % _PALETTE_SIZE)


def palette_colour(index: int) -> Colour:
    """Return a bright colour, RGB 0 to 255; those of small indices differ well."""
    red, green, blue = colorsys.hsv_to_rgb(index * _GOLDEN_RATIO % 1, 0.75, 1.0)
    return round(red * 255), round(green * 255), round(blue * 255)


def _check_size(name: str, pixels: np.ndarray, image: Image.Image) -> None:
    height, width = pixels.shape
    if (width, height) != image.size:
        raise ValueError(f"the {name} has {width}×{height} pixels, but the photo {image.width}×{image.height}")


def _add_legend(
    image: Image.Image, names: Sequence[str], colours: Sequence[Colour], shares: Mapping[str, float]
) -> Image.Image:
    font = _font(image)
    line = int(font.size * 1.5)
    extended = Image.new("RGB", (image.width, image.height + line * len(names)), "white")
    extended.paste(image)
    canvas = ImageDraw.Draw(extended)
    for number, (name, colour) in enumerate(zip(names, colours, strict=True)):
        top = image.height + line * number
        canvas.rectangle((0, top, line, top + line), fill=colour)
        share = f" {shares[name]:.1%}" if name in shares else ""
        canvas.text((line * 1.3, top + line * 0.1), f"{name}{share}", fill=(0, 0, 0), font=font)
    return extended


def _open_upright(photo: bytes) -> Image.Image:
    try:
        with Image.open(io.BytesIO(photo)) as image:
            upright = ImageOps.exif_transpose(image)
            if upright.mode.startswith("I"):  # 16 bits of gray, which Pillow would clip at 255
                upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
            return upright.convert("RGB")
    except (OSError, Image.DecompressionBombError) as exc:
        raise ValueError(f"Pillow cannot read the photo: {exc}") from exc


def _font(image: Image.Image) -> ImageFont.FreeTypeFont:
    size = min(max(_MIN_FONT_SIZE, min(image.size) * _FONT_SHARE), _MAX_FONT_SIZE)
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont)  # Pillow's wheels contain FreeType
    return font


def _as_png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
