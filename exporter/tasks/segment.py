"""Task: a label for each pixel of the photo."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
from PIL import Image

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.image import framing
from savedmodel_bakery.exporter.recipe import Preprocessing
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
    placement_of,
)
from savedmodel_bakery.exporter.tensor_types import NetworkOutputs, Side, Tensor

# Scores that are interpolated at one time. A photo's scores can take gigabytes, its map takes a byte per pixel.
_BAND_SCORES = 2**22
_SHOWN = 3


@dataclass(frozen=True)
class Segment(Task):
    """See `Task`."""

    name: ClassVar[str] = "segment"
    measure: ClassVar[str] = "share of different pixels"
    tolerance: ClassVar[Tolerance] = Tolerance(share=0.99)
    max_side: ClassVar[int | None] = 2**16 - 1  # as of a JPEG file; PNG files of more than a million can't be written
    class_names: tuple[str, ...]  # in the order of class ids; empty for an id without a name
    outputs: str  # `probabilities`, `logits`, or `ids` if the network returns the class of each pixel
    preprocessing: Preprocessing

    def signatures(self) -> Mapping[str, Signature]:
        """See `Task.signatures`."""
        classes = len(self.class_names)
        columns: Mapping[str, Column] = {
            "map_png_bytes": Column((), b""),
            "shares": Column((classes,), np.float32(0)),
            "labels": Column((classes,), b""),
        }
        answer = Signature("images", columns, self._compute)
        return {"serving_default": answer, "pixels": replace(answer, takes="pixels")}

    def compare(self, answers: Answers, result: NetworkResult, tolerance: Tolerance) -> Comparison:
        """See `Task.compare`."""
        answer = answers["serving_default"]
        actual = np.asarray(Image.open(io.BytesIO(answer["map_png_bytes"])))
        expected = self._expected_map(result)
        if actual.shape != expected.shape:
            raise VerificationError(f"the SavedModel's map has the shape {actual.shape}, the photo {expected.shape}")
        shares, expected_shares = self._shares(actual), self._shares(expected)
        if not np.allclose(shares, answer["shares"], atol=1e-5):
            raise VerificationError("the SavedModel's shares do not match its map")
        difference = float(np.mean(actual != expected))
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
            fn_output_signature=(tf.TensorSpec([], tf.string), tf.TensorSpec([len(self.class_names)], tf.float32)),
            parallel_iterations=1,
        )
        return maps, shares, tf.tile(tf.constant([self.class_names]), [tf.shape(sizes)[0], 1])

    def _segment(self, network_map: Tensor, placement: Tensor) -> tuple[Tensor, Tensor]:
        """Return the map of one photo as a PNG file, and the share of each class.

        The `network_map` has scores [height, width, classes], or class ids [height, width]; `placement` is a
        `image.framing.Placement` of one photo.
        """
        classes = len(self.class_names)
        window = placement.window
        rows, columns = (
            _resampled(*sides)
            for sides in zip(
                (placement.height, placement.width),
                (window.top, window.left),
                (window.height, window.width),
                self.preprocessing.size,
                network_map.shape[:2],
                strict=True,
            )
        )
        photo_map = network_map[rows.first : rows.end, columns.first : columns.end]
        if self.outputs == "ids":
            nearest = tf.gather(tf.cast(photo_map, tf.uint8), _nearest(columns.positions, columns), axis=1)
            rows_at_once = tf.maximum(_BAND_SCORES // placement.width, 1)

            def ids_of(first: Side, end: Side) -> Tensor:
                return tf.gather(nearest, _nearest(rows.positions[first:end], rows))
        else:
            # By one pixel at each edge, beyond which scores stay the same.
            scores = tf.pad(self._class_scores(photo_map), [[1, 1], [1, 1], [0, 0]], "SYMMETRIC")
            rows_at_once = tf.maximum(_BAND_SCORES // (placement.width * classes), 1)

            def ids_of(first: Side, end: Side) -> Tensor:
                resized = _interpolate(scores, rows.positions[first:end] + 1, columns.positions + 1)
                return tf.cast(tf.argmax(resized, axis=-1, output_type=tf.int32), tf.uint8)

        def add_band(first: Side, number: Tensor, bands: Tensor, counts: Tensor) -> tuple[Side, Tensor, Tensor, Tensor]:
            end = tf.minimum(first + rows_at_once, placement.height)
            ids = ids_of(first, end)
            flat = tf.cast(tf.reshape(ids, [-1]), tf.int32)
            counts += tf.math.bincount(flat, minlength=classes, maxlength=classes, dtype=tf.int64)
            return end, number + 1, bands.write(number, ids), counts

        bands = tf.TensorArray(tf.uint8, size=0, dynamic_size=True, infer_shape=False, element_shape=[None, None])
        _, _, bands, counts = tf.while_loop(
            lambda first, *_: first < placement.height,
            add_band,
            (tf.constant(0, tf.int64), tf.constant(0), bands, tf.zeros([classes], tf.int64)),
            parallel_iterations=1,
        )
        pixel_count = tf.cast(placement.height * placement.width, tf.float64)
        shares = tf.cast(tf.cast(counts, tf.float64) / pixel_count, tf.float32)
        return tf.io.encode_png(bands.concat()[..., tf.newaxis]), shares

    def _class_scores(self, scores: Tensor) -> Tensor:
        """Return scores with one channel per class; a network for two classes may have one for the second."""
        if scores.shape[-1] == len(self.class_names):
            return scores
        return tf.concat([tf.zeros_like(scores) if self.outputs == "logits" else 1 - scores, scores], axis=-1)

    def _expected_map(self, result: NetworkResult) -> np.ndarray:
        """Return the class id of each pixel of the photo: uint8 [height, width]."""
        network_map = result.outputs["map"]
        place = placement_of(result.size, self.preprocessing)
        parts = []
        for axis, (length, start, fitted, whole) in enumerate(zip(*place, self.preprocessing.size, strict=True)):
            size = network_map.shape[axis]
            first, end = start * size // whole, -(-(start + fitted) * size // whole)
            network_map = network_map.take(range(first, end), axis)
            parts.append((start + (np.arange(length) + 0.5) * fitted / length) * size / whole - 0.5 - first)
        rows, columns = parts
        if self.outputs == "ids":
            nearest = (
                np.clip(np.floor(positions + 0.5).astype(int), 0, size - 1)
                for positions, size in zip(parts, network_map.shape, strict=True)
            )
            return network_map[np.ix_(*nearest)].astype(np.uint8)
        if self.outputs == "probabilities":
            check_probabilities(network_map)
        if network_map.shape[-1] < len(self.class_names):
            first_class = np.zeros_like(network_map) if self.outputs == "logits" else 1 - network_map
            network_map = np.concatenate([first_class, network_map], axis=-1)
        return np.stack([_lerp(_lerp(network_map, row[np.newaxis])[0], columns).argmax(-1) for row in rows]).astype(
            np.uint8
        )

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


class _Resampled(NamedTuple):
    """A side of a photo's part of a map."""

    first: Side  # its first pixel in the map
    end: Side
    positions: Tensor  # of the photo's pixels in that part, float64; 0 is the centre of its first pixel


def _resampled(length: Side, start: Side, fitted: Side, whole: int, size: int) -> _Resampled:
    """Return which part of a side of a map belongs to the photo, and where the photo's pixels lie there.

    The photo's side of `length` pixels is from `start` in the network's input, with `fitted` pixels of `whole`; that of
    the map has `size`.
    """
    first, end = start * size // whole, -(-(start + fitted) * size // whole)
    zoom = tf.cast(fitted, tf.float64) / tf.cast(length, tf.float64)
    in_input = tf.cast(start, tf.float64) + (tf.range(tf.cast(length, tf.float64), dtype=tf.float64) + 0.5) * zoom
    return _Resampled(first, end, in_input * (size / whole) - 0.5 - tf.cast(first, tf.float64))


def _nearest(positions: Tensor, part: _Resampled) -> Tensor:
    return tf.clip_by_value(tf.cast(tf.floor(positions + 0.5), tf.int64), 0, part.end - part.first - 1)


def _interpolate(scores: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Interpolate scores [height, width, classes] bilinearly at evenly spaced rows and columns."""
    # crop_and_resize states the first and the last position as parts of the distance between the outer pixels.
    top, bottom, left, right = (
        position / tf.cast(size - 1, tf.float64)
        for positions, size in zip((rows, columns), tf.unstack(tf.shape(scores)[:2]), strict=True)
        for position in (positions[0], positions[-1])
    )
    box = tf.cast(tf.stack([[top, left, bottom, right]]), tf.float32)
    size = tf.stack([tf.size(rows), tf.size(columns)])
    return tf.image.crop_and_resize(scores[tf.newaxis], box, [0], size)[0]


def _lerp(values: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Interpolate along the first axis."""
    lower = np.floor(positions).astype(int)
    weights = np.expand_dims(positions - lower, tuple(range(1, values.ndim)))
    first, second = (values[np.clip(index, 0, len(values) - 1)] for index in (lower, lower + 1))
    return np.asarray(first * (1 - weights) + second * weights)
