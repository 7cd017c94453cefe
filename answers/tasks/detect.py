"""Task detect: the objects in an image, with their boxes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from savedmodel_bakery.answers.task import ImageResult, Row, Scores, Task, as_text, first_scores

if TYPE_CHECKING:
    from savedmodel_bakery.label_files import Colour


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


class _Detect(Task[Detections]):
    name = "detect"
    outputs: ClassVar = {"labels": "nk", "scores": "nk", "boxes": "nk4", "count": "n"}
    result = Detections
    can_draw = True

    def read_row(self, row: Row) -> Detections:
        columns = (row[alias][: row["count"]].tolist() for alias in ("labels", "scores", "boxes"))
        boxes = tuple(Box(as_text(label), score, *edges) for label, score, edges in zip(*columns, strict=True))
        return Detections(ok=True, error=None, boxes=boxes)

    def cells(self, result: Detections) -> dict[str, Any]:
        return {"error": result.error, "boxes": [asdict(box) for box in result.boxes]}

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        return tuple(sorted(box["label"] for box in row["boxes"])), first_scores(row["boxes"])

    def lines(self, result: Detections) -> list[str]:
        return [
            f"{box.ymin:.1f}\t{box.xmin:.1f}\t{box.ymax:.1f}\t{box.xmax:.1f}\t{box.label}\t{box.score:.3f}"
            for box in result.boxes
        ]

    def draw(self, photo: bytes, result: Detections, colours: Mapping[str, Colour]) -> bytes:
        from savedmodel_bakery.answers.drawing import draw_boxes

        return draw_boxes(photo, [astuple(box) for box in result.boxes], colours)


DETECT = _Detect()
