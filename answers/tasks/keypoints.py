"""The task keypoints: places in an image, by name."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from savedmodel_bakery.answers.task import ImageResult, Row, Scores, Task, as_text

if TYPE_CHECKING:
    from savedmodel_bakery.label_files import Colour


@dataclass(frozen=True)
class Keypoint:
    """One point of an image, in pixels of the upright image, counted from its top left corner; it may be outside.

    The score is the network's own, such as a probability; None if it returns none.
    """

    name: str
    y: float
    x: float
    score: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Keypoints(ImageResult):
    """The points of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        points: the points in the order of the network; empty if not `ok`.
        edges: pairs of numbers of points that a drawing joins, such as those of a skeleton.
    """

    points: tuple[Keypoint, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()


class _Keypoints(Task[Keypoints]):
    name = "keypoints"
    outputs: ClassVar = {"points": "nk2", "names": "nk"}
    optional_outputs: ClassVar = {"scores": "nk", "edges": "ne2"}
    result = Keypoints
    can_draw = True

    def read_row(self, row: Row) -> Keypoints:
        scores = row["scores"].tolist() if "scores" in row else [None] * len(row["names"])
        points = zip(row["names"], row["points"].tolist(), scores, strict=True)
        return Keypoints(
            ok=True,
            error=None,
            points=tuple(Keypoint(as_text(name), y, x, score) for name, (y, x), score in points),
            edges=tuple((first, second) for first, second in row["edges"].tolist()) if "edges" in row else (),
        )

    def cells(self, result: Keypoints) -> dict[str, Any]:
        return {"error": result.error, "points": [asdict(point) for point in result.points]}

    def document(self, result: Keypoints) -> dict[str, Any]:
        """Return the columns, and the pairs of points that are joined."""
        return {**self.cells(result), "edges": [list(edge) for edge in result.edges]}

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        """Return the names as labels, and the coordinates and scores as scores."""
        numbers = {
            f"{point['name']} {part}": point[part]
            for point in row["points"]
            for part in ("y", "x", "score")
            if point[part] is not None
        }
        return tuple(point["name"] for point in row["points"]), numbers

    def lines(self, result: Keypoints) -> list[str]:
        return [
            f"{point.y:.1f}\t{point.x:.1f}\t{point.name}" + ("" if point.score is None else f"\t{point.score:.3f}")
            for point in result.points
        ]

    def draw(self, photo: bytes, result: Keypoints, colours: Mapping[str, Colour]) -> bytes:
        from savedmodel_bakery.answers.drawing import draw_points

        return draw_points(photo, [(point.name, point.y, point.x) for point in result.points], result.edges, colours)


KEYPOINTS = _Keypoints()
