"""Task segment: the class of each pixel of an image."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from savedmodel_bakery.answers.task import ImageResult, Row, Scores, Task, as_text
from savedmodel_bakery.errors import InvalidResponseError
from savedmodel_bakery.extras import naming_extras

if TYPE_CHECKING:
    from savedmodel_bakery.label_files import Colour


@dataclass(frozen=True)
class Segmentation(ImageResult):
    """The class of each pixel of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        map_png: the class ids as an 8-bit grey PNG file of the size of the upright image; empty if not `ok`.
        labels: the model's labels, by class id; empty if not `ok`.
        shares: label to its share of the pixels, 0 to 1, in the order of class ids; empty if not `ok`.
    """

    map_png: bytes = field(default=b"", repr=False)
    labels: tuple[str, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)

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
            from PIL import Image

        try:
            with Image.open(io.BytesIO(self.map_png), formats=["PNG"]) as image:
                if image.mode != "L":
                    raise InvalidResponseError(f"the map is a PNG file of mode {image.mode}: must be 8-bit grey")
                return np.array(image, np.uint8)
        except Image.DecompressionBombError as exc:
            raise InvalidResponseError(f"the map is too large for Pillow: {exc}") from exc
        except OSError as exc:
            raise InvalidResponseError(f"the map ({len(self.map_png)} bytes) is not a valid PNG file") from exc


class _Segment(Task[Segmentation]):
    name = "segment"
    outputs: ClassVar = {"map_png_bytes": "n", "shares": "nk", "labels": "nk"}
    result = Segmentation
    file_suffix = ".png"
    can_draw = True

    def read_row(self, row: Row) -> Segmentation:
        labels = tuple(map(as_text, row["labels"]))
        shares = dict.fromkeys(labels, 0.0)
        for label, share in zip(labels, row["shares"].tolist(), strict=True):
            shares[label] += share  # two classes may have the same label
        return Segmentation(ok=True, error=None, map_png=row["map_png_bytes"], labels=labels, shares=shares)

    def cells(self, result: Segmentation) -> dict[str, Any]:
        return {"error": result.error, "shares": dict(result.shares), "map_png": result.map_png or None}

    def document(self, result: Segmentation) -> dict[str, Any]:
        """Return the columns and the labels by class id; the map is base64."""
        return {**self.cells(result), "labels": list(result.labels), "map_png": b64encode(result.map_png).decode()}

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
