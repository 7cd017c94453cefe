"""Task: any number of objects, each with a box, a label and a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.image import framing
from savedmodel_bakery.exporter.recipe.model import OBJECT_DETECTION_API
from savedmodel_bakery.exporter.tasks import box_reference
from savedmodel_bakery.exporter.tasks.box_reference import BoxSettings, Detection
from savedmodel_bakery.exporter.tasks.task import Answers, Column, Comparison, NetworkResult, Signature, Task, Tolerance
from savedmodel_bakery.exporter.tensor_types import Boxes, ClassIds, NetworkOutputs, Scores, Tensor

_SHOWN = 3


@dataclass(frozen=True)
class Detect(BoxSettings, Task):
    """See `Task`."""

    name: ClassVar[str] = "detect"
    measure: ClassVar[str] = "share of boxes without a partner"
    tolerance: ClassVar[Tolerance] = Tolerance(atol=0.01, share=0.99, iou=0.9)

    def signatures(self) -> Mapping[str, Signature]:
        """See `Task.signatures`."""
        columns: Mapping[str, Column] = {
            "boxes": Column((self.max_boxes, 4), np.float32(0)),
            "labels": Column((self.max_boxes,), b""),
            "scores": Column((self.max_boxes,), np.float32(0)),
            "count": Column((), np.int32(0)),
        }
        answer = Signature("images", columns, self._compute)
        return {"serving_default": answer, "pixels": replace(answer, takes="pixels")}

    def compare(self, answers: Answers, result: NetworkResult, tolerance: Tolerance) -> Comparison:
        """See `Task.compare`. A box near the threshold, or near the end of a full list, needs no partner."""
        answer = answers["serving_default"]
        actual = [
            Detection(label.decode(), float(score), box)
            for label, score, box in zip(
                *(answer[alias][: answer["count"]] for alias in ("labels", "scores", "boxes")), strict=True
            )
        ]
        expected = box_reference.detect(self, result, tolerance)
        share = box_reference.share_without_partner(actual, expected, tolerance, self.threshold, self.max_boxes)
        has_boxes = bool(actual or expected)
        return Comparison(
            share,
            tolerance.allows_share(share),
            _describe(actual),
            _describe(expected[: self.max_boxes]),
            "" if has_boxes else f"no box has a score of {self.threshold:g} or more, so no boxes were compared",
            box_reference.doubts(self, result, expected),
        )

    def _compute(self, outputs: NetworkOutputs, sizes: Tensor) -> Sequence[Tensor]:
        find = self._read_found if self.boxes == OBJECT_DETECTION_API else self._suppress_overlapping
        boxes, scores, class_ids, count = find(outputs)
        is_box = tf.sequence_mask(count, self.max_boxes)
        return (
            tf.where(is_box[..., tf.newaxis], self._to_photo(boxes, sizes), 0.0),
            tf.where(is_box, self._names(class_ids), ""),
            tf.where(is_box, scores, 0.0),
            count,
        )

    def _suppress_overlapping(self, outputs: NetworkOutputs) -> tuple[Boxes, Scores, ClassIds, Tensor]:
        """Return the boxes that remain after non-maximum suppression per class, best first, and their number."""
        scores = outputs["scores"]
        if "classes" in outputs:  # one score per box
            classes = tf.one_hot(tf.cast(outputs["classes"], tf.int32), len(self.class_names))
            scores = classes * self._probabilities(scores)[..., tf.newaxis]
        else:
            scores = self._probabilities(scores)
            if self.background_class != "none":
                scores = scores[..., self.object_classes]
        scores = _without_padding(outputs, scores)
        found = tf.image.combined_non_max_suppression(
            self._edges(outputs["boxes"])[:, :, tf.newaxis],
            scores,
            max_output_size_per_class=self.max_boxes,
            max_total_size=self.max_boxes,
            iou_threshold=self.iou_threshold,
            score_threshold=np.nextafter(np.float32(self.threshold), np.float32(-1)),  # it must be exceeded
            clip_boxes=False,
        )
        class_ids = tf.cast(found.nmsed_classes, tf.int32)
        return found.nmsed_boxes, found.nmsed_scores, class_ids, found.valid_detections

    def _read_found(self, outputs: NetworkOutputs) -> tuple[Boxes, Scores, ClassIds, Tensor]:
        """Return the boxes of a network that has suppressed overlapping ones itself, best first, and their number."""
        scores, class_ids = _without_padding(outputs, outputs["scores"]), tf.cast(outputs["classes"], tf.int32)
        missing = tf.maximum(self.max_boxes - tf.shape(scores)[1], 0)
        scores = tf.where(scores >= self.threshold, scores, -1.0)
        scores = tf.pad(scores, [[0, 0], [0, missing]], constant_values=-1.0)
        best = tf.math.top_k(scores, self.max_boxes)
        boxes = tf.pad(self._edges(outputs["boxes"]), [[0, 0], [0, missing], [0, 0]])
        return (
            tf.gather(boxes, best.indices, batch_dims=1),
            best.values,
            tf.gather(tf.pad(class_ids, [[0, 0], [0, missing]]), best.indices, batch_dims=1),
            tf.math.count_nonzero(best.values >= 0, axis=1, dtype=tf.int32),
        )

    def _edges(self, boxes: Boxes) -> Boxes:
        """Return boxes as ymin, xmin, ymax, xmax in pixels of the network's input."""
        first, second, third, fourth = tf.unstack(boxes, axis=-1)
        match self.boxes:
            case "xyxy":
                edges = second, first, fourth, third
            case "cxcywh":
                edges = second - fourth / 2, first - third / 2, second + fourth / 2, first + third / 2
            case _:
                edges = first, second, third, fourth
        height, width = self.preprocessing.size if self.box_unit == "fractions" else (1, 1)
        return tf.stack(edges, axis=-1) * tf.constant([height, width, height, width], tf.float32)

    def _to_photo(self, boxes: Boxes, sizes: Tensor) -> Boxes:
        """Return boxes in pixels of the photos, of which they cover no more than there is."""
        corners = framing.to_photo(tf.reshape(boxes, [-1, 2 * self.max_boxes, 2]), sizes, self.preprocessing)
        whole = tf.cast(tf.tile(sizes, [1, 2]), tf.float32)[:, tf.newaxis]
        return tf.clip_by_value(tf.reshape(corners, [-1, self.max_boxes, 4]), 0.0, whole)

    def _probabilities(self, scores: Scores) -> Scores:
        if self.outputs == "probabilities":
            return scores
        return tf.sigmoid(scores) if self.background_class == "none" else tf.nn.softmax(scores)

    def _names(self, class_ids: ClassIds) -> Tensor:
        """Return the labels of class ids, and the number of an id that has none."""
        is_known = (class_ids >= 0) & (class_ids < len(self.class_names))
        names = tf.gather(tf.constant(self.class_names), tf.where(is_known, class_ids, 0))
        return tf.where(is_known & tf.not_equal(names, ""), names, tf.strings.as_string(class_ids))


def _without_padding(outputs: NetworkOutputs, scores: Scores) -> Scores:
    """Return scores [images, boxes, …] with -1 for the boxes beyond the network's count, if it returns one."""
    if "count" not in outputs:
        return scores
    is_box = tf.sequence_mask(tf.cast(outputs["count"], tf.int32), tf.shape(scores)[1])
    return tf.where(is_box if len(scores.shape) == 2 else is_box[..., tf.newaxis], scores, -1.0)


def _describe(detections: Sequence[Detection]) -> str:
    shown = [f"{detection.label} {detection.score:.2f}" for detection in detections[:_SHOWN]]
    return ", ".join([*shown, "…"] if len(detections) > _SHOWN else shown) or "no box"
