"""The results of the methods that take images, one per image. Imports numpy and Pillow on demand."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from savedmodel_bakery.client.errors import InvalidResponseError
from savedmodel_bakery.extras import naming_extras

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class ImageResult:
    """The attributes that all results have.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
    """

    ok: bool
    error: str | None


@dataclass(frozen=True)
class ScoredLabel:
    """One class of an image: its label, its score (a probability, 0 to 1) and its index in the model's classes."""

    label: str
    score: float
    class_id: int


@dataclass(frozen=True)
class Classification(ImageResult):
    """The classes of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        label: the best class, None if not `ok`: the one with the highest score, or with task binary the one that the
            model's threshold decides for.
        top: the best classes, best first; empty if not `ok`.
    """

    label: str | None = None
    top: tuple[ScoredLabel, ...] = ()


@dataclass(frozen=True)
class Tag:
    """One label that an image has, and its score (a probability, 0 to 1)."""

    label: str
    score: float


@dataclass(frozen=True)
class Tags(ImageResult):
    """The labels of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        tags: the labels whose score reaches the model's threshold, best first; may be empty.
    """

    tags: tuple[Tag, ...] = ()


@dataclass(frozen=True)
class Embedding(ImageResult):
    """The embedding of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        vector: float32 [d]; None if not `ok`.
    """

    vector: np.ndarray | None = None

    def __eq__(self, other: object) -> bool:
        """Return whether they have the same vector; arrays don't compare by `==` alone."""
        import numpy as np

        if not isinstance(other, Embedding):
            return NotImplemented
        vectors = np.asarray(self.vector), np.asarray(other.vector)
        return (self.ok, self.error) == (other.ok, other.error) and np.array_equal(*vectors)

    def __hash__(self) -> int:
        """Return a hash without the vector, which has none."""
        return hash((self.ok, self.error))


@dataclass(frozen=True)
class Box:
    """One object in an image: its label, its score (a probability, 0 to 1), and its edges in pixels.

    The pixels are those of the upright image, counted from its top left corner.
    """

    label: str
    score: float
    ymin: float
    xmin: float
    ymax: float
    xmax: float


@dataclass(frozen=True)
class Detections(ImageResult):
    """The objects in one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        boxes: the objects, best first; may be empty.
    """

    boxes: tuple[Box, ...] = ()


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
        import numpy as np

        try:
            with Image.open(io.BytesIO(self.map_png), formats=["PNG"]) as image:
                if image.mode != "L":
                    raise InvalidResponseError(f"the map is a PNG file of mode {image.mode}: must be 8-bit grey")
                return np.array(image, np.uint8)
        except Image.DecompressionBombError as exc:
            raise InvalidResponseError(f"the map is too large for Pillow: {exc}") from exc
        except OSError as exc:
            raise InvalidResponseError(f"the map ({len(self.map_png)} bytes) is not a valid PNG file") from exc


@dataclass(frozen=True)
class Regression(ImageResult):
    """The numbers of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        values: name to number, sorted by name; a single number without a name is called `value`. Empty if not `ok`.
    """

    values: Mapping[str, float] = field(default_factory=dict)
