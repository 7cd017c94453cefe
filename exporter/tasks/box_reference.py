"""The reference of task detect: from a network's outputs to boxes, and their comparison, with NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from savedmodel_bakery.exporter.recipe.boxes import OBJECT_DETECTION_API
from savedmodel_bakery.exporter.tasks.placement import placement_of
from savedmodel_bakery.exporter.tasks.task import NetworkResult, Tolerance, check_probabilities, sigmoid, softmax

if TYPE_CHECKING:
    from savedmodel_bakery.exporter.tasks.detect import Detect


class Detection(NamedTuple):
    """An object in a photo.

    Attributes:
        label: its class.
        score: 0..1.
        box: float [4], ymin, xmin, ymax, xmax in pixels of the photo.
    """

    label: str
    score: float
    box: np.ndarray


def detect(task: Detect, result: NetworkResult) -> list[Detection]:
    """Return what the task answers for a network's outputs, best first."""
    boxes, scores, class_ids = _candidates(task, result)
    place = placement_of(result.size, task.preprocessing)
    detections: list[Detection] = []
    kept: list[tuple[int, np.ndarray]] = []
    for index in np.argsort(-scores, kind="stable"):
        box, class_id = boxes[index], int(class_ids[index])
        if len(detections) == task.max_boxes or scores[index] < task.threshold:
            break
        if task.boxes != OBJECT_DETECTION_API:
            overlaps = [iou(box, other) for other_id, other in kept if other_id == class_id]
            if max(overlaps, default=0.0) > task.iou_threshold:
                continue
            kept.append((class_id, box))
        name = task.class_names[class_id] if 0 <= class_id < len(task.class_names) else ""
        detections.append(Detection(name or str(class_id), float(scores[index]), place.to_photo(box)))
    return detections


def _candidates(task: Detect, result: NetworkResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return boxes [count, 4] in pixels of the network's input, their scores and their class ids."""
    outputs = result.outputs
    boxes = _edges(task, outputs["boxes"].astype(np.float64))
    scores = outputs["scores"].astype(np.float64)
    if "count" in outputs:
        boxes, scores = boxes[: int(outputs["count"])], scores[: int(outputs["count"])]
    if task.outputs == "probabilities":
        check_probabilities(scores)
    else:
        scores = sigmoid(scores) if task.background_class == "none" else softmax(scores)
    if "classes" in outputs:
        class_ids = outputs["classes"][: len(boxes)].astype(int)
        is_known = (class_ids >= 0) & (class_ids < len(task.class_names)) | (task.boxes == OBJECT_DETECTION_API)
        return boxes[is_known], scores[is_known], class_ids[is_known]
    scores = {"none": scores, "first": scores[:, 1:], "last": scores[:, :-1]}[task.background_class]
    rows, class_ids = np.nonzero(scores >= task.threshold)
    return boxes[rows], scores[rows, class_ids], class_ids


def _edges(task: Detect, boxes: np.ndarray) -> np.ndarray:
    if task.boxes == "cxcywh":
        centres, sides = boxes[:, 1::-1], boxes[:, :1:-1]
        boxes = np.concatenate([centres - sides / 2, centres + sides / 2], axis=1)
    elif task.boxes == "xyxy":
        boxes = boxes[:, [1, 0, 3, 2]]
    return boxes * np.tile(task.preprocessing.size, 2) if task.box_unit == "fractions" else boxes


def iou(box: np.ndarray, other: np.ndarray) -> float:
    """Return the intersection of two boxes over their union; 0 if both are empty."""
    sides = np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2])
    common = float(np.prod(np.maximum(sides, 0)))
    areas = [float(np.prod(np.maximum(each[2:] - each[:2], 0))) for each in (box, other)]
    union = sum(areas) - common
    return common / union if union > 0 else 0.0


def share_without_partner(
    actual: Sequence[Detection], expected: Sequence[Detection], tolerance: Tolerance, threshold: float
) -> float:
    """Return the part of all boxes for which the other list has none that agrees.

    Two boxes agree if their labels are the same, their scores differ within tolerance, and they overlap by the
    tolerance's `iou`. A box without a partner doesn't count if its score is within tolerance of the threshold.
    """
    partners: set[int] = set()
    lonely = []
    for detection in expected:
        partner = next(
            (
                index
                for index, other in enumerate(actual)
                if index not in partners and _agree(detection, other, tolerance)
            ),
            None,
        )
        if partner is None:
            lonely.append(detection)
        else:
            partners.add(partner)
    lonely += [other for index, other in enumerate(actual) if index not in partners]
    counted = [detection for detection in lonely if not _is_near(detection.score, threshold, tolerance)]
    return len(counted) / max(len(expected) + len(actual), 1)


def _agree(detection: Detection, other: Detection, tolerance: Tolerance) -> bool:
    return (
        detection.label == other.label
        and _is_near(other.score, detection.score, tolerance)
        and (np.allclose(detection.box, other.box, atol=1e-3) or iou(detection.box, other.box) >= tolerance.iou)
    )


def _is_near(score: float, expected: float, tolerance: Tolerance) -> bool:
    return tolerance.allows(np.abs(score - expected), np.asarray(expected))
