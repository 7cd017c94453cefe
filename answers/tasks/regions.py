"""The tasks that return places: detect, objects with boxes; segment, the class of each pixel; image, a picture."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from savedmodel_bakery.answers.run_lengths import decode_mask
from savedmodel_bakery.answers.task import ImageResult, Row, Scores, Task, as_text, first_scores
from savedmodel_bakery.errors import InvalidResponseError
from savedmodel_bakery.extras import naming_extras

if TYPE_CHECKING:
    from savedmodel_bakery.label_files import Colour


@dataclass(frozen=True)
class Box:
    """One object in an image: its label, its score (a probability, 0 to 1), and its edges in pixels.

    The pixels are those of the upright image, counted from its top left corner.

    Attributes:
        mask_counts: COCO's compressed run lengths of its mask; None if the model was baked without masks.
        mask_size: height and width of the mask, which are those of the upright image. pycocotools reads
            `{"size": mask_size, "counts": mask_counts}`.
    """

    label: str
    score: float
    ymin: float
    xmin: float
    ymax: float
    xmax: float
    mask_counts: str | None = field(default=None, repr=False)
    mask_size: tuple[int, int] | None = None

    @property
    def mask(self) -> np.ndarray:
        """Decode the mask: bool [height, width] of the upright image, whether a pixel is of the object.

        Raises:
            InvalidResponseError: `mask_counts` is not such a text, or of another number of pixels.
            ValueError: the model was baked without masks.
        """
        if self.mask_counts is None or self.mask_size is None:
            raise ValueError("the box has no mask: the model was baked without masks")
        try:
            return decode_mask(self.mask_counts, self.mask_size)
        except ValueError as exc:
            raise InvalidResponseError(f"the mask is invalid: {exc}") from exc


@dataclass(frozen=True, eq=False, repr=False)
class Detections(ImageResult):
    """The objects in one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        boxes: the objects, best first; may be empty.
    """

    boxes: tuple[Box, ...] = ()


class _Detect(Task[Detections]):
    name = "detect"
    outputs: ClassVar = {"labels": "nk", "scores": "nk", "boxes": "nk4", "count": "n"}
    optional_outputs: ClassVar = {"mask_counts": "nk", "mask_size": "n2"}
    result = Detections
    can_draw = True
    score_column = 5

    def read_row(self, row: Row) -> Detections:
        labels, scores, boxes = (row[alias][: row["count"]].tolist() for alias in ("labels", "scores", "boxes"))
        masks: list[tuple[Any, ...]] = [()] * len(labels)
        if {"mask_counts", "mask_size"} <= row.keys():
            size = tuple(row["mask_size"].tolist())
            masks = [(as_text(counts), size) for counts in row["mask_counts"][: len(labels)]]
        columns = zip(labels, scores, boxes, masks, strict=True)
        found = tuple(Box(as_text(label), score, *edges, *mask) for label, score, edges, mask in columns)
        return Detections(ok=True, error=None, boxes=found)

    def cells(self, result: Detections) -> dict[str, Any]:
        return {"error": result.error, "boxes": [_cell(box) for box in result.boxes]}

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        masks = {("mask", box["label"]): box["mask_counts"] for box in reversed(row["boxes"]) if box.get("mask_counts")}
        return tuple(sorted(box["label"] for box in row["boxes"])), first_scores(row["boxes"]) | masks

    def lines(self, result: Detections) -> list[str]:
        return [
            f"{box.ymin:.1f}\t{box.xmin:.1f}\t{box.ymax:.1f}\t{box.xmax:.1f}\t{box.label}\t{box.score:.3f}"
            for box in result.boxes
        ]

    def draw(self, photo: bytes, result: Detections, colours: Mapping[str, Colour]) -> bytes:
        from savedmodel_bakery.answers.drawing import draw_boxes

        masks = (None if box.mask_counts is None else box.mask for box in reversed(result.boxes))
        boxes = [(box.label, box.score, box.ymin, box.xmin, box.ymax, box.xmax) for box in result.boxes]
        return draw_boxes(photo, boxes, masks, colours)


def _cell(box: Box) -> dict[str, Any]:
    """Return a box as JSON has it."""
    return asdict(box) | {"mask_size": None if box.mask_size is None else [*box.mask_size]}


DETECT = _Detect()


@dataclass(frozen=True, eq=False, repr=False)
class Segmentation(ImageResult):
    """The class of each pixel of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        map_png: the class ids as an 8-bit grey PNG file of the size of the upright image; empty if not `ok`.
        labels: the model's labels, by class id; empty if not `ok`.
        shares: label to its share of the pixels, 0 to 1, in the order of class ids; empty if not `ok`.
        probability_png: the probability of each pixel's class, 0 to 255, as such a file; empty if the model was baked
            without it.
    """

    map_png: bytes = field(default=b"", repr=False)
    labels: tuple[str, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    probability_png: bytes = field(default=b"", repr=False)

    @cached_property
    def map(self) -> np.ndarray:
        """The class ids, uint8 [height, width]. Needs the extra `draw`.

        Raises:
            InvalidResponseError: `map_png` is not a grey PNG file, or has more pixels than Pillow opens (179 million).
            MissingPackageError: the extra is not installed.
            ValueError: the image could not be read.
        """
        if not self.ok:
            raise ValueError(f"the image has no map, because it could not be read: {self.error}")
        with naming_extras("Segmentation.map", "draw"):
            return _read_png(self.map_png, ("L",), "map", must_be="8-bit grey")


class _Segment(Task[Segmentation]):
    name = "segment"
    outputs: ClassVar = {"map_png_bytes": "n", "shares": "nk", "labels": "nk"}
    optional_outputs: ClassVar = {"probability_png_bytes": "n"}
    result = Segmentation
    file_suffix = ".png"
    can_draw = True
    score_column = 1

    def read_row(self, row: Row) -> Segmentation:
        labels = tuple(map(as_text, row["labels"]))
        shares = dict.fromkeys(labels, 0.0)
        for label, share in zip(labels, row["shares"].tolist(), strict=True):
            shares[label] += share  # two classes may have the same label
        probability_png = row.get("probability_png_bytes", b"")
        return Segmentation(True, None, row["map_png_bytes"], labels, shares, probability_png)

    def cells(self, result: Segmentation) -> dict[str, Any]:
        return {"error": result.error, "shares": dict(result.shares), "map_png": result.map_png or None}

    def document(self, result: Segmentation) -> dict[str, Any]:
        """Return the columns and the labels by class id; the maps are base64."""
        files = {name: b64encode(getattr(result, name)).decode() for name in ("map_png", "probability_png")}
        return {**self.cells(result), "labels": list(result.labels), **files}

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        return max(row["shares"], key=row["shares"].get, default=None), row["shares"]

    def lines(self, result: Segmentation) -> list[str]:
        largest_first = sorted(result.shares.items(), key=lambda item: -item[1])
        return [f"{label}\t{share:.3f}" for label, share in largest_first if share > 0]

    def file_content(self, result: Segmentation) -> bytes:
        return result.map_png

    def draw(self, photo: bytes, result: Segmentation, colours: Mapping[str, Colour]) -> bytes:
        from savedmodel_bakery.answers.drawing import draw_map

        return draw_map(photo, result.map, result.labels, result.shares, colours)


SEGMENT = _Segment()


@dataclass(frozen=True, eq=False, repr=False)
class Picture(ImageResult):
    """The picture that the network made of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        png: a PNG file, gray or RGB, of 8 or 16 bits; empty if not `ok`.
    """

    png: bytes = field(default=b"", repr=False)

    @cached_property
    def array(self) -> np.ndarray:
        """The levels, uint8 [height, width] or [height, width, 3], or uint16 [height, width]. Needs the extra `draw`.

        Raises:
            InvalidResponseError: `png` is not such a file, has more pixels than Pillow opens (179 million), or is RGB
                of 16 bits, which Pillow can't read.
            MissingPackageError: the extra is not installed.
            ValueError: the image could not be read.
        """
        if not self.ok:
            raise ValueError(f"there is no picture, because the image could not be read: {self.error}")
        if self.png[24:26] == b"\x10\x02":  # bits and colours in the header (PNG, 11.2.1)
            raise InvalidResponseError(
                "the picture is RGB of 16 bits, which Pillow cannot read: decode `png` otherwise"
            )
        return _read_picture(self.png)


def _read_picture(file: bytes) -> np.ndarray:
    """Return the levels of a picture; 8 bits of 16 if it is RGB."""
    with naming_extras("Picture.array", "draw"):
        return _read_png(file, ("L", "RGB", "I;16"), "picture", must_be="grey or RGB")


def _read_png(file: bytes, modes: tuple[str, ...], what: str, *, must_be: str) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(file), formats=["PNG"]) as image:
            if image.mode not in modes:
                raise InvalidResponseError(f"the {what} is a PNG file of mode {image.mode}: must be {must_be}")
            return np.array(image)
    except Image.DecompressionBombError as exc:
        raise InvalidResponseError(f"the {what} is too large for Pillow: {exc}") from exc
    except OSError as exc:
        raise InvalidResponseError(f"the {what} ({len(file)} bytes) is not a valid PNG file") from exc


def _size_of(png: bytes) -> tuple[int, int]:
    """Return width and height from the header of a PNG file (PNG, 11.2.1)."""
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


class _Transform(Task[Picture]):
    name = "image"
    method = "transform"
    outputs: ClassVar = {"png_bytes": "n"}
    result = Picture
    file_suffix = ".png"

    def read_row(self, row: Row) -> Picture:
        return Picture(ok=True, error=None, png=row["png_bytes"])

    def cells(self, result: Picture) -> dict[str, Any]:
        return {"error": result.error, "png": result.png or None}

    def document(self, result: Picture) -> dict[str, Any]:
        """Return the columns; the file is base64."""
        return {"error": result.error, "png": b64encode(result.png).decode()}

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        """Return the shape, and the picture from black to white: those of two versions are never equal."""
        if row["png"] is None:
            return None, {}
        levels = _read_picture(row["png"])
        return levels.shape, {levels.shape: levels / np.iinfo(levels.dtype).max}

    def lines(self, result: Picture) -> list[str]:
        width, height = _size_of(result.png)
        return [f"PNG\t{width}x{height}\t{len(result.png)} bytes"]

    def file_content(self, result: Picture) -> bytes:
        return result.png

    def picture(self, result: Picture) -> bytes:
        return result.png


TRANSFORM = _Transform()
