"""Task: any number of objects, each with a box, a label and a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.answers.run_lengths import decode_mask
from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.image import framing
from savedmodel_bakery.exporter.recipe.model import OBJECT_DETECTION_API
from savedmodel_bakery.exporter.tasks import box_reference
from savedmodel_bakery.exporter.tasks.box_reference import BoxSettings, Detection
from savedmodel_bakery.exporter.tasks.masks import encode_masks
from savedmodel_bakery.exporter.tasks.task import Answers, Column, Comparison, NetworkResult, Signature, Task, Tolerance
from savedmodel_bakery.exporter.tensor_types import Boxes, ClassIds, NetworkOutputs, Scores, Tensor

_SHOWN = 3


class _Found(NamedTuple):
    """The boxes of images, best first; beyond the count they are of no meaning."""

    boxes: Boxes  # in pixels of the network's input
    scores: Scores
    class_ids: ClassIds
    count: Tensor  # int32 [images]
    rows: Tensor | None  # which of the network's boxes they are, int32 [images, boxes], if it returns masks


@dataclass(frozen=True)
class Detect(BoxSettings, Task):
    """See `Task`."""

    name: ClassVar[str] = "detect"
    measure: ClassVar[str] = "share of boxes without a partner"
    tolerance: ClassVar[Tolerance] = Tolerance(atol=0.01, share=0.99, iou=0.9)
    common: ClassVar[str] = "the same boxes, with an IoU of 0.9,"
    approximation: ClassVar[Tolerance] = Tolerance(atol=0.1, share=0.9, iou=0.9)

    @property
    def max_side(self) -> int | None:  # type: ignore[override]
        """See `Task`. With masks, the time that one takes depends on the number of columns of the photo."""
        return 2**16 - 1 if self.masks else None

    def signatures(self) -> Mapping[str, Signature]:
        """See `Task.signatures`."""
        columns: Mapping[str, Column] = {
            "boxes": Column((self.max_boxes, 4), np.float32(0)),
            "labels": Column((self.max_boxes,), b""),
            "scores": Column((self.max_boxes,), np.float32(0)),
            "count": Column((), np.int32(0)),
        }
        if self.masks:
            columns = {
                **columns,
                "mask_counts": Column((self.max_boxes,), b""),
                "mask_size": Column((2,), np.int32(0)),
            }
        answer = Signature("images", columns, self._compute)
        return {"serving_default": answer, "pixels": replace(answer, takes="pixels")}

    def compare(self, answers: Answers, result: NetworkResult, tolerance: Tolerance) -> Comparison:
        """See `Task.compare`. A box near the threshold, or near the end of a full list, needs no partner."""
        answer = answers["serving_default"]
        masks: list[partial[np.ndarray] | None] = [None] * int(answer["count"])
        if self.masks:
            size = tuple(answer["mask_size"].tolist())
            if size != result.size:
                raise VerificationError(f"the SavedModel's masks have the size {size}, the photo {result.size}")
            masks = [partial(decode_mask, counts.decode(), size) for counts in answer["mask_counts"][: len(masks)]]
        actual = [
            Detection(label.decode(), float(score), box, mask)
            for label, score, box, mask in zip(
                *(answer[alias][: len(masks)] for alias in ("labels", "scores", "boxes")), masks, strict=True
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
        found = find(outputs)
        count = found.count
        is_box = tf.sequence_mask(count, self.max_boxes)
        boxes = self._to_photo(found.boxes, sizes)
        whole = tf.cast(tf.tile(sizes, [1, 2]), tf.float32)[:, tf.newaxis]
        computed = [
            tf.where(is_box[..., tf.newaxis], tf.clip_by_value(boxes, 0.0, whole), 0.0),
            tf.where(is_box, self._names(found.class_ids), ""),
            tf.where(is_box, found.scores, 0.0),
            count,
        ]
        if self.masks:
            counts = encode_masks(self.masks, self.preprocessing, outputs, found.rows, boxes, count, sizes)
            computed += [counts, tf.cast(sizes, tf.int32)]
        return computed

    def _suppress_overlapping(self, outputs: NetworkOutputs) -> _Found:
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
        boxes = self._edges(outputs["boxes"])
        found = tf.image.combined_non_max_suppression(
            boxes[:, :, tf.newaxis],
            scores,
            max_output_size_per_class=self.max_boxes,
            max_total_size=self.max_boxes,
            iou_threshold=self.iou_threshold,
            score_threshold=np.nextafter(np.float32(self.threshold), np.float32(-1)),  # it must be exceeded
            clip_boxes=False,
        )
        class_ids = tf.cast(found.nmsed_classes, tf.int32)
        rows = _find_rows(boxes, scores, found.nmsed_boxes, found.nmsed_scores, class_ids) if self.masks else None
        return _Found(found.nmsed_boxes, found.nmsed_scores, class_ids, found.valid_detections, rows)

    def _read_found(self, outputs: NetworkOutputs) -> _Found:
        """Return the boxes of a network that has suppressed overlapping ones itself, best first, and their number."""
        scores, class_ids = _without_padding(outputs, outputs["scores"]), tf.cast(outputs["classes"], tf.int32)
        missing = tf.maximum(self.max_boxes - tf.shape(scores)[1], 0)
        scores = tf.where(scores >= self.threshold, scores, -1.0)
        scores = tf.pad(scores, [[0, 0], [0, missing]], constant_values=-1.0)
        best = tf.math.top_k(scores, self.max_boxes)
        boxes = tf.pad(self._edges(outputs["boxes"]), [[0, 0], [0, missing], [0, 0]])
        return _Found(
            tf.gather(boxes, best.indices, batch_dims=1),
            best.values,
            tf.gather(tf.pad(class_ids, [[0, 0], [0, missing]]), best.indices, batch_dims=1),
            tf.math.count_nonzero(best.values >= 0, axis=1, dtype=tf.int32),
            best.indices,
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
        """Return boxes in pixels of the photos, beyond which they may extend."""
        corners = framing.to_photo(tf.reshape(boxes, [-1, 2 * self.max_boxes, 2]), sizes, self.preprocessing)
        return tf.reshape(corners, [-1, self.max_boxes, 4])

    def _probabilities(self, scores: Scores) -> Scores:
        if self.outputs == "probabilities":
            return scores
        return tf.sigmoid(scores) if self.background_class == "none" else tf.nn.softmax(scores)

    def _names(self, class_ids: ClassIds) -> Tensor:
        """Return the labels of class ids, and the number of an id that has none."""
        is_known = (class_ids >= 0) & (class_ids < len(self.class_names))
        names = tf.gather(tf.constant(self.class_names), tf.where(is_known, class_ids, 0))
        return tf.where(is_known & tf.not_equal(names, ""), names, tf.strings.as_string(class_ids))


def _find_rows(boxes: Boxes, scores: Scores, kept: Boxes, kept_scores: Scores, class_ids: ClassIds) -> Tensor:
    """Return which of the boxes are kept, int32 [images, kept]: combined_non_max_suppression does not say.

    Boxes of one class with the same edges and the same score are not both kept, unless any overlap is allowed.
    """

    def find(image: tuple[Boxes, Scores, Boxes, Scores, ClassIds]) -> Tensor:
        boxes, scores, kept, kept_scores, class_ids = image
        is_kept = tf.equal(tf.gather(scores, class_ids, axis=1), kept_scores)
        for edge, kept_edge in zip(tf.unstack(boxes, axis=1), tf.unstack(kept, axis=1), strict=True):
            is_kept &= tf.equal(edge[:, tf.newaxis], kept_edge)
        return tf.argmax(tf.cast(is_kept, tf.int32), axis=0, output_type=tf.int32)

    spec = tf.TensorSpec([kept.shape[1]], tf.int32)
    return tf.map_fn(
        find, (boxes, scores, kept, kept_scores, class_ids), fn_output_signature=spec, parallel_iterations=1
    )


def _without_padding(outputs: NetworkOutputs, scores: Scores) -> Scores:
    """Return scores [images, boxes, …] with -1 for the boxes beyond the network's count, if it returns one."""
    if "count" not in outputs:
        return scores
    is_box = tf.sequence_mask(tf.cast(outputs["count"], tf.int32), tf.shape(scores)[1])
    return tf.where(is_box if len(scores.shape) == 2 else is_box[..., tf.newaxis], scores, -1.0)


def _describe(detections: Sequence[Detection]) -> str:
    shown = [f"{detection.label} {detection.score:.2f}" for detection in detections[:_SHOWN]]
    return ", ".join([*shown, "…"] if len(detections) > _SHOWN else shown) or "no box"
