"""Task: a label for each pixel of the photo."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import tensorflow as tf
from PIL import Image

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.image import framing
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.tasks import resampling
from savedmodel_bakery.exporter.tasks.task import (
    Answers,
    Column,
    Comparison,
    Doubt,
    NetworkResult,
    Signature,
    Task,
    Tolerance,
    check_probabilities,
    doubt_logits,
    sigmoid,
    softmax,
)
from savedmodel_bakery.exporter.tensor_types import NetworkOutputs, Side, Tensor

_SHOWN = 3
_MAX_LOGIT = 1e30
_WHITE = 255
_PROBABILITY_TOLERANCE = 0.01 + 0.5 / _WHITE  # rounding included


@dataclass(frozen=True)
class Segment(Task):
    """See `Task`."""

    name: ClassVar[str] = "segment"
    measure: ClassVar[str] = "share of different pixels"
    tolerance: ClassVar[Tolerance] = Tolerance(share=0.99)
    common: ClassVar[str] = "the same pixels"
    approximation: ClassVar[Tolerance] = Tolerance(share=0.95)
    max_side: ClassVar[int | None] = 2**16 - 1  # as of a JPEG file; PNG files of more than a million can't be written
    class_names: tuple[str, ...]  # in the order of class ids; empty for an id without a name
    outputs: str  # `probabilities`, `logits`, or `ids` if the network returns the class of each pixel
    preprocessing: Preprocessing
    threshold: float = 0.5  # above which a pixel is of the second class, if the network has one score per pixel
    has_probabilities: bool = False  # whether there is a map of the probabilities of the pixels' classes too

    def signatures(self) -> Mapping[str, Signature]:
        """See `Task.signatures`."""
        classes = len(self.class_names)
        columns: Mapping[str, Column] = {
            **{f"{name}_png_bytes": Column((), b"") for name in self._maps},
            "shares": Column((classes,), np.float32(0)),
            "labels": Column((classes,), b""),
        }
        answer = Signature("images", columns, self._compute)
        return {"serving_default": answer, "pixels": replace(answer, takes="pixels")}

    def compare(self, answers: Answers, result: NetworkResult, tolerance: Tolerance) -> Comparison:
        """See `Task.compare`."""
        answer = answers["serving_default"]
        actual, *probabilities = (_read(answer[f"{name}_png_bytes"]) for name in self._maps)
        expected, *expected_probabilities = self._expected_maps(result)
        if actual.shape != expected.shape:
            raise VerificationError(f"the SavedModel's map has the shape {actual.shape}, the photo {expected.shape}")
        shares, expected_shares = self._shares(actual), self._shares(expected)
        if not np.allclose(shares, answer["shares"], atol=1e-5):
            raise VerificationError("the SavedModel's shares do not match its map")
        differs = actual != expected
        for levels, wanted in zip(probabilities, expected_probabilities, strict=True):
            differs |= np.abs(levels / _WHITE - wanted) > _PROBABILITY_TOLERANCE
        difference = float(np.mean(differs))
        return Comparison(
            difference,
            tolerance.allows_share(difference),
            self._describe(shares),
            self._describe(expected_shares),
            self._caveat(actual),
            self._doubts(result.outputs["map"]),
        )

    def _compute(self, outputs: NetworkOutputs, sizes: Tensor) -> Sequence[Tensor]:
        maps, shares = tf.map_fn(
            lambda image: self._segment(*image),
            (outputs["map"], framing.place(sizes, self.preprocessing)),
            fn_output_signature=(
                tf.TensorSpec([len(self._maps)], tf.string),
                tf.TensorSpec([len(self.class_names)], tf.float32),
            ),
            parallel_iterations=1,
        )
        labels = tf.tile(tf.constant([self.class_names]), [tf.shape(sizes)[0], 1])
        return *tf.unstack(maps, axis=1), shares, labels

    @property
    def _maps(self) -> Sequence[str]:
        """The maps that are answered."""
        return ("map", "probability") if self.has_probabilities else ("map",)

    def _segment(self, network_map: Tensor, placement: Tensor) -> tuple[Tensor, Tensor]:
        """Return the maps of one photo as PNG files, and the share of each class.

        The `network_map` has scores [height, width, classes], or class ids [height, width]; `placement` is a
        `image.framing.Placement` of one photo.
        """
        classes = len(self.class_names)
        rows, columns = resampling.resample(network_map, placement, self.preprocessing)
        photo_map = network_map[rows.first : rows.end, columns.first : columns.end]
        if self.outputs == "ids":
            ids = tf.cast(photo_map, tf.uint8)
            nearest = tf.gather(ids, resampling.nearest(columns.positions, columns), axis=1)

            def layers_of(first: Side, end: Side) -> Tensor:
                return tf.gather(nearest, resampling.nearest(rows.positions[first:end], rows))[..., tf.newaxis]
        else:
            scores_of = resampling.interpolator(self._class_scores(photo_map), rows, columns)

            is_single = photo_map.shape[-1] < classes

            def layers_of(first: Side, end: Side) -> Tensor:
                scores = scores_of(first, end)
                ids = tf.argmax(scores, axis=-1, output_type=tf.int32)
                layers = [ids]
                if self.has_probabilities:
                    layers.append(tf.cast(tf.round(_WHITE * self._probabilities(scores, ids, is_single)), tf.int32))
                return tf.cast(tf.stack(layers, axis=-1), tf.uint8)

        def compute(first: Side, end: Side, counts: Tensor) -> tuple[Tensor, Tensor]:
            layers = layers_of(first, end)
            flat = tf.cast(tf.reshape(layers[..., 0], [-1]), tf.int32)
            return layers, counts + tf.math.bincount(flat, minlength=classes, maxlength=classes, dtype=tf.int64)

        layers, counts = resampling.in_bands(
            placement,
            1 if self.outputs == "ids" else classes,
            compute,
            tf.TensorSpec([None, None, len(self._maps)], tf.uint8),
            tf.zeros([classes], tf.int64),
        )
        pixel_count = tf.cast(placement.height * placement.width, tf.float64)
        shares = tf.cast(tf.cast(counts, tf.float64) / pixel_count, tf.float32)
        files = [tf.io.encode_png(layers[..., number : number + 1]) for number in range(len(self._maps))]
        return tf.stack(files), shares

    def _probabilities(self, scores: Tensor, ids: Tensor, is_single: bool) -> Tensor:
        """Return the probabilities of the pixels' classes, from scores with one channel per class."""
        if is_single:  # that of the first class is the least score
            second = scores[..., 1] if self.outputs == "probabilities" else tf.sigmoid(scores[..., 1])
            return tf.where(ids == 1, second, 1 - second)
        return tf.reduce_max(scores if self.outputs == "probabilities" else tf.nn.softmax(scores), axis=-1)

    def _class_scores(self, scores: Tensor) -> Tensor:
        """Return scores with one channel per class; a network for two classes may have one for the second."""
        if scores.shape[-1] == len(self.class_names):
            return scores
        return tf.concat([tf.fill(tf.shape(scores), np.float32(self._least_score)), scores], axis=-1)

    @property
    def _least_score(self) -> float:
        """The score above which a pixel is of the second class."""
        if self.outputs == "probabilities":
            return self.threshold
        with np.errstate(divide="ignore"):
            return float(np.clip(np.log(self.threshold) - np.log1p(-self.threshold), -_MAX_LOGIT, _MAX_LOGIT))

    def _expected_maps(self, result: NetworkResult) -> Sequence[np.ndarray]:
        """Return the class id of each pixel of the photo, uint8 [height, width], and perhaps its probability."""
        network_map, positions = resampling.crop_expected(result.outputs["map"], result.size, self.preprocessing)
        if self.outputs == "ids":
            nearest = (
                np.clip(np.floor(each + 0.5).astype(int), 0, size - 1)
                for each, size in zip(positions, network_map.shape, strict=True)
            )
            return [network_map[np.ix_(*nearest)].astype(np.uint8)]
        if self.outputs == "probabilities":
            check_probabilities(network_map)
        is_single = network_map.shape[-1] < len(self.class_names)
        if is_single:
            network_map = np.concatenate([np.full_like(network_map, self._least_score), network_map], axis=-1)
        rows, columns = positions
        ids, probabilities = [], []
        for row in rows[:, np.newaxis]:
            scores = resampling.interpolate_expected(network_map, (row, columns))
            ids.append(scores.argmax(-1))
            if self.has_probabilities:
                probabilities.append(self._expected_probabilities(scores, ids[-1], is_single))
        return [np.concatenate(ids).astype(np.uint8), *([np.concatenate(probabilities)] if probabilities else [])]

    def _expected_probabilities(self, scores: np.ndarray, ids: np.ndarray, is_single: bool) -> np.ndarray:
        if is_single:
            second = scores[..., 1] if self.outputs == "probabilities" else sigmoid(scores[..., 1])
            return np.where(ids == 1, second, 1 - second)
        return np.asarray((scores if self.outputs == "probabilities" else softmax(scores)).max(axis=-1))

    def _shares(self, class_map: np.ndarray) -> np.ndarray:
        classes = len(self.class_names)
        return np.bincount(class_map.reshape(-1), minlength=256)[:classes] / class_map.size

    def _caveat(self, class_map: np.ndarray) -> str:
        first, classes = int(class_map.flat[0]), len(self.class_names)
        if classes == 1 or np.any(class_map != first):
            return ""
        name = repr(self.class_names[first]) if first < classes else f"of class {first}"
        return f"every pixel is {name}, so only one class was compared"

    def _doubts(self, network_map: np.ndarray) -> tuple[Doubt, ...]:
        """Return doubts about one score per pixel; of several, the best is the same for logits and probabilities."""
        is_single = self.outputs == "logits" and network_map.shape[-1] < len(self.class_names)
        return doubt_logits(network_map) if is_single else ()

    def _describe(self, shares: np.ndarray) -> str:
        best = [class_id for class_id in np.argsort(-shares, kind="stable")[:_SHOWN] if shares[class_id]]
        return ", ".join(f"{self.class_names[class_id]} {shares[class_id]:.2f}" for class_id in best)


def _read(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))
