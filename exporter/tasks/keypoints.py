"""Task keypoints: places in the photo by name, such as the joints of a person, from coordinates or heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.image import framing
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.tasks.task import (
    FARTHEST_FRACTION,
    Answers,
    Column,
    Comparison,
    Doubt,
    NetworkResult,
    Signature,
    Task,
    Tolerance,
    likely_unit,
    placement_of,
)
from savedmodel_bakery.exporter.tensor_types import NetworkOutputs, Tensor

_SHOWN = 3


@dataclass(frozen=True)
class Keypoints(Task):
    """See `Task`. In a heat map, the point is the centre of the highest cell, whose value is its score."""

    name: ClassVar[str] = "keypoints"
    measure: ClassVar[str] = "distance, as a part of the photo's longer side, or difference of scores"
    tolerance: ClassVar[Tolerance] = Tolerance(atol=0.005, rtol=0.01)
    common: ClassVar[str] = "points within 2 % of the photo's longer side, and scores within 5 % and 0.02,"
    approximation: ClassVar[Tolerance] = Tolerance(atol=0.02, rtol=0.05)
    names: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]  # which points drawings join
    points: str  # `yx` or `xy`: the order of coordinates; or `maps`: heat maps
    point_unit: str  # of coordinates: `fractions` or `pixels` of the network's input
    has_scores: bool
    preprocessing: Preprocessing

    def signatures(self) -> Mapping[str, Signature]:
        """See `Task.signatures`."""
        count = len(self.names)
        columns = {"points": Column((count, 2), np.float32(0)), "names": Column((count,), b"")}
        if self.has_scores:
            columns["scores"] = Column((count,), np.float32(0))
        if self.edges:
            columns["edges"] = Column((len(self.edges), 2), np.int32(0))
        answer = Signature("images", columns, self._compute)
        return {"serving_default": answer, "pixels": replace(answer, takes="pixels")}

    def compare(self, answers: Answers, result: NetworkResult, tolerance: Tolerance) -> Comparison:
        """See `Task.compare`. Cells of a heat map whose values are within tolerance of the highest may be the point."""
        answer = answers["serving_default"]
        found = self._maxima(result, tolerance) if self.points == "maps" else self._coordinates(result)
        place = placement_of(result.size, self.preprocessing)
        expected = [place.to_photo(places) for places in found]
        distances = [
            np.linalg.norm(places - point, axis=1).min()
            for places, point in zip(expected, answer["points"], strict=True)
        ]
        shares = np.array(distances) / max(result.size)
        difference, is_within = float(shares.max()), tolerance.allows(shares, np.zeros_like(shares))
        if self.has_scores:
            scores = self._scores(result)
            differences = np.abs(answer["scores"] - scores)
            difference = max(difference, float(differences.max()))
            is_within &= tolerance.allows(differences, scores)
        best = np.array([places[0] for places in expected])
        return Comparison(
            difference,
            is_within,
            self._describe(answer["points"]),
            self._describe(best),
            doubts=() if self.points == "maps" else self._doubts(result),
        )

    def _compute(self, outputs: NetworkOutputs, sizes: Tensor) -> Sequence[Tensor]:
        output, count = outputs["points"], len(self.names)
        if self.points == "maps":
            height, width = output.shape[1:3]
            cells = tf.reshape(output, [-1, height * width, count])
            best = tf.argmax(cells, axis=1)
            centres = tf.cast(tf.stack([best // width, best % width], axis=-1), tf.float32) + 0.5
            points, scores = centres / [height, width] * self._size, tf.reduce_max(cells, axis=1)
        else:
            points, scores = output[..., :2], output[..., -1]
            points = points[..., ::-1] if self.points == "xy" else points
            points = points * self._size if self.point_unit == "fractions" else points
        images = tf.shape(output)[0]
        computed = {
            "points": framing.to_photo(points, sizes, self.preprocessing),
            "names": tf.tile([self.names], [images, 1]),
            "scores": scores,
            "edges": tf.tile(tf.reshape(tf.constant(self.edges, tf.int32), [1, -1, 2]), [images, 1, 1]),
        }
        return [computed[alias] for alias in self.signatures()["serving_default"].columns]

    @property
    def _size(self) -> np.ndarray:
        """Height and width of the network's input."""
        return np.array(self.preprocessing.size, np.float32)

    def _coordinates(self, result: NetworkResult) -> Sequence[np.ndarray]:
        """Return the points, each [1, 2], in pixels of the network's input."""
        points = self._rows(result)[:, :2]
        points = points[:, ::-1] if self.points == "xy" else points
        return [*(points * self._size if self.point_unit == "fractions" else points)[:, np.newaxis]]

    def _maxima(self, result: NetworkResult, tolerance: Tolerance) -> Sequence[np.ndarray]:
        """Return the centres of the highest cells of each map, best first, [any number, 2], in pixels of the input."""
        maps = result.outputs["points"].astype(np.float64)
        centres = (np.moveaxis(np.indices(maps.shape[:2]), 0, -1).reshape(-1, 2) + 0.5) / maps.shape[:2] * self._size
        found = []
        for cells in maps.reshape(-1, len(self.names)).T:
            lowest = cells.max() - tolerance.atol - tolerance.rtol * abs(cells.max())
            order = np.argsort(-cells, kind="stable")
            found.append(centres[order[: np.count_nonzero(cells >= lowest)]])
        return found

    def _scores(self, result: NetworkResult) -> np.ndarray:
        if self.points == "maps":
            return np.asarray(result.outputs["points"].max(axis=(0, 1)))
        return self._rows(result)[:, -1]

    def _rows(self, result: NetworkResult) -> np.ndarray:
        """Return what the network states of each point."""
        return result.outputs["points"].astype(np.float64).reshape(len(self.names), -1)

    def _doubts(self, result: NetworkResult) -> tuple[Doubt, ...]:
        """Return the doubt that the coordinates have another unit; points may be outside of the image."""
        farthest = np.abs(self._rows(result)[:, :2]).max(axis=1)
        unit = likely_unit(self.point_unit, farthest)
        if unit == self.point_unit:
            return ()
        seen = {
            "pixels": "the network's coordinates are far outside of 0 to 1",
            "fractions": f"all of the network's coordinates are below {FARTHEST_FRACTION}",
        }
        reason = f"point_unit is {self.point_unit}, but {seen[unit]}"
        return (Doubt(reason, f"up to {farthest.max():.3g}", f"bake with --point-unit {unit}", is_error=True),)

    def _describe(self, points: np.ndarray) -> str:
        shown = [
            f"{name} at y {y:.1f}, x {x:.1f}"
            for name, (y, x) in zip(self.names[:_SHOWN], points.tolist(), strict=False)
        ]
        return "; ".join([*shown, "…"] if len(self.names) > _SHOWN else shown)
