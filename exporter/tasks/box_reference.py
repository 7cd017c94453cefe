"""The reference of task detect: from a network's outputs to boxes, and their comparison, with NumPy alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.recipe.model import OBJECT_DETECTION_API
from savedmodel_bakery.exporter.tasks import mask_reference
from savedmodel_bakery.exporter.tasks.mask_settings import MaskSettings
from savedmodel_bakery.exporter.tasks.task import (
    FARTHEST_FRACTION,
    Doubt,
    NetworkResult,
    Tolerance,
    check_probabilities,
    doubt_logits,
    likely_unit,
    placement_of,
    sigmoid,
    softmax,
)

# Number of boxes with about the same score that may follow the last one of an answer.
_MAX_TIED = 1000


@dataclass(frozen=True)
class BoxSettings:
    """How a network states boxes, and which of them are answered; see the recipe."""

    class_names: tuple[str, ...]  # in the order of class ids; boxes of an id with an empty name get the number as label
    outputs: str  # what the network returns as scores: `probabilities` or `logits`
    threshold: float  # of the score, from which on a box is answered; 0..1
    boxes: str
    box_unit: str  # `fractions` or `pixels` of the network's input
    iou_threshold: float  # overlap beyond which the worse of two boxes with the same label is dropped; 0..1
    max_boxes: int  # in an answer
    background_class: str  # `none`, `first` or `last` of the network's classes
    preprocessing: Preprocessing
    masks: MaskSettings | None = None  # if the network returns masks

    @property
    def object_classes(self) -> slice:
        """The network's classes without the background."""
        return {"none": slice(None), "first": slice(1, None), "last": slice(None, -1)}[self.background_class]


class Detection(NamedTuple):
    """An object in a photo."""

    label: str
    score: float  # 0..1
    box: np.ndarray  # float [4], ymin, xmin, ymax, xmax in pixels of the photo
    # Returns its mask, which may be large: bool [height, width] of the photo, or the expected one.
    mask: Callable[[], Any] | None = None


def detect(settings: BoxSettings, result: NetworkResult, tolerance: Tolerance) -> list[Detection]:
    """Return what task detect answers for a network's outputs, best first.

    More than `max_boxes` if further ones have about the score of the last: a tiny difference in scores decides
    which of them is in an answer.
    """
    boxes, scores, class_ids, rows = _candidates(settings, result)
    place = placement_of(result.size, settings.preprocessing)
    detections: list[Detection] = []
    is_left = np.ones(len(boxes), bool)
    lowest = settings.threshold
    for index in np.argsort(-scores, kind="stable"):
        if scores[index] < lowest or len(detections) == settings.max_boxes + _MAX_TIED:
            break
        if not is_left[index]:
            continue
        box, class_id = boxes[index], int(class_ids[index])
        if settings.boxes != OBJECT_DETECTION_API:
            is_left &= (class_ids != class_id) | (iou(boxes, box) <= settings.iou_threshold)
        name = settings.class_names[class_id] if 0 <= class_id < len(settings.class_names) else ""
        whole = place.to_photo(box.reshape(2, 2))
        in_photo = np.clip(whole, 0, place.size).reshape(4)
        mask = None
        if settings.masks:
            arguments = settings.masks, settings.preprocessing, result.outputs, int(rows[index]), whole.reshape(4)
            mask = partial(mask_reference.expected_mask, *arguments, result.size)
        detections.append(Detection(name or str(class_id), float(scores[index]), in_photo, mask))
        if len(detections) == settings.max_boxes:
            # Twice, because both this score and those of further boxes may differ.
            lowest = max(lowest, scores[index] - 2 * (tolerance.atol + tolerance.rtol * scores[index]))
    return detections


def doubts(settings: BoxSettings, result: NetworkResult, detections: Sequence[Detection]) -> tuple[Doubt, ...]:
    """Return the doubts about the recipe of a network's outputs, from which the task's detections follow."""
    of_scores = doubt_logits(result.outputs["scores"]) if settings.outputs == "logits" else ()
    of_scores += mask_reference.doubts(settings.masks, result.outputs) if settings.masks else ()
    boxes, scores, _, _ = _candidates(settings, result)
    boxes = boxes[scores >= settings.threshold]
    if not len(boxes):
        return of_scores
    edges = boxes / np.tile(settings.preprocessing.size, 2) if settings.box_unit == "fractions" else boxes
    farthest, lowest, highest = np.abs(edges).max(axis=1), edges.min(), edges.max()
    values = f"edges from {lowest:.3g} to {highest:.3g}"
    unit = likely_unit(settings.box_unit, farthest)
    if unit != settings.box_unit:
        seen = {
            "pixels": "the network's boxes are far outside of 0 to 1",
            "fractions": f"all edges of the network's boxes are below {FARTHEST_FRACTION}",
        }
        options = "--boxes yxyx --outputs probabilities " if settings.boxes == OBJECT_DETECTION_API else ""
        reason = f"box_unit is {settings.box_unit}, but {seen[unit]}"
        return (*of_scores, Doubt(reason, values, f"bake with {options}--box-unit {unit}", is_error=True))
    if all(np.any(detection.box[2:] <= detection.box[:2]) for detection in detections):
        reason = "all boxes are empty: the lower right corner is not below and right of the upper left one"
        return (*of_scores, Doubt(reason, values, "check --boxes and --box-unit"))
    return of_scores


def _candidates(settings: BoxSettings, result: NetworkResult) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return boxes [count, 4] in pixels of the network's input, their scores, class ids, and rows in its outputs."""
    outputs = result.outputs
    boxes = _edges(settings, outputs["boxes"].astype(np.float64))
    scores = outputs["scores"].astype(np.float64)
    if "count" in outputs:
        boxes, scores = boxes[: int(outputs["count"])], scores[: int(outputs["count"])]
    if settings.outputs == "probabilities":
        check_probabilities(scores)
    else:
        scores = sigmoid(scores) if settings.background_class == "none" else softmax(scores)
    if "classes" in outputs:
        class_ids = outputs["classes"][: len(boxes)].astype(int)
        is_known = (class_ids >= 0) & (class_ids < len(settings.class_names)) | (settings.boxes == OBJECT_DETECTION_API)
        return boxes[is_known], scores[is_known], class_ids[is_known], np.flatnonzero(is_known)
    scores = scores[:, settings.object_classes]
    rows, class_ids = np.nonzero(scores >= settings.threshold)
    return boxes[rows], scores[rows, class_ids], class_ids, rows


def _edges(settings: BoxSettings, boxes: np.ndarray) -> np.ndarray:
    if settings.boxes == "cxcywh":
        centres, sides = boxes[:, [1, 0]], boxes[:, [3, 2]]
        boxes = np.concatenate([centres - sides / 2, centres + sides / 2], axis=1)
    elif settings.boxes == "xyxy":
        boxes = boxes[:, [1, 0, 3, 2]]
    return boxes * np.tile(settings.preprocessing.size, 2) if settings.box_unit == "fractions" else boxes


def iou(boxes: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the intersection of each of the boxes [..., 4] with another one [4], over their union; 0 if it is empty.

    The edges of a box may be in either order, as for TensorFlow's non-maximum suppression.
    """
    boxes, other = (
        np.concatenate([np.minimum(each[..., :2], each[..., 2:]), np.maximum(each[..., :2], each[..., 2:])], axis=-1)
        for each in (boxes, other)
    )
    sides = np.minimum(boxes[..., 2:], other[2:]) - np.maximum(boxes[..., :2], other[:2])
    common = np.prod(np.maximum(sides, 0), axis=-1)
    areas = [np.prod(each[..., 2:] - each[..., :2], axis=-1) for each in (boxes, other)]
    union = sum(areas) - common
    return np.asarray(np.divide(common, union, out=np.zeros_like(union), where=union > 0))


def share_without_partner(
    actual: Sequence[Detection], expected: Sequence[Detection], tolerance: Tolerance, threshold: float, max_boxes: int
) -> float:
    """Return the part of all boxes for which the other list has none that agrees.

    Two boxes agree if their labels are the same, their scores differ within tolerance, and they and their masks
    overlap by the tolerance's `iou`. A box without a partner doesn't count if its score is within tolerance of the
    threshold, or of the last score of the other list if that is full, with `max_boxes`. Both lists have the best first;
    expected ones beyond `max_boxes` may be in place of others.
    """
    required, tied = expected[:max_boxes], expected[max_boxes:]
    left = list(actual)
    missing = [detection for detection in required if not _take_partner(detection, left, tolerance)]
    for detection in tied:
        _take_partner(detection, left, tolerance)
    limits = [threshold] + ([actual[-1].score] if len(actual) == max_boxes else [])
    lonely = [
        *(each for each in missing if not any(_is_near(each.score, limit, tolerance) for limit in limits)),
        *(each for each in left if not _is_near(each.score, threshold, tolerance)),
    ]
    return len(lonely) / max(len(required) + len(actual), 1)


def _take_partner(detection: Detection, others: list[Detection], tolerance: Tolerance) -> bool:
    """Remove the first of the others that agrees with an expected detection; return whether there is one."""
    for index, other in enumerate(others):
        if (
            detection.label == other.label
            and _is_near(other.score, detection.score, tolerance)
            and (np.allclose(detection.box, other.box, atol=1e-3) or iou(detection.box, other.box) >= tolerance.iou)
            and _has_mask(detection, other, tolerance)
        ):
            del others[index]
            return True
    return False


def _has_mask(detection: Detection, other: Detection, tolerance: Tolerance) -> bool:
    """Return whether the mask of another detection agrees with that of an expected one, if these have masks."""
    if detection.mask is None or other.mask is None:
        return True
    return mask_reference.mask_iou(other.mask(), detection.mask(), tolerance) >= tolerance.iou


def _is_near(score: float, expected: float, tolerance: Tolerance) -> bool:
    return tolerance.allows(np.abs(score - expected), np.asarray(expected))
