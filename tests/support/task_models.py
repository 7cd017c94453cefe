"""Makes SavedModels with the signatures of tasks, whose answers are constants."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

MAP = np.array([[0, 0, 1], [0, 2, 2]], np.uint8)
DETECTIONS: Mapping[str, Any] = {
    "boxes": tf.constant([[1.0, 2.0, 30.0, 14.0], [0.0, 0.5, 10.0, 19.0], [0.0, 0.0, 0.0, 0.0]]),
    "labels": tf.constant(["cat", "dog", ""]),
    "scores": tf.constant([0.75, 0.5, 0.0]),
    "count": tf.constant(2),
}


def detector(base_path: Path, version: int = 1) -> Path:
    """Save a version that finds a cat and a dog in each image that does not begin with `bad`; see `DETECTIONS`."""
    return _save(base_path / str(version), DETECTIONS)


def segmenter(base_path: Path, version: int = 1) -> Path:
    """Save a version that returns `MAP` for each image that does not begin with `bad`."""
    file = io.BytesIO()
    Image.fromarray(MAP).save(file, "PNG")
    shares = np.bincount(MAP.ravel()) / MAP.size
    answers = {
        "map_png_bytes": tf.constant(file.getvalue()),
        "shares": tf.constant(shares, tf.float32),
        "labels": tf.constant(["road", "tree", "car"]),
    }
    return _save(base_path / str(version), answers)


def meter(base_path: Path, version: int = 1) -> Path:
    """Save a version that measures how red each PNG file is, 0..255."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image")], autograph=False)
    def serve(image: tf.Tensor) -> dict[str, tf.Tensor]:
        def redness(file: tf.Tensor) -> tf.Tensor:
            return tf.reduce_mean(tf.cast(tf.io.decode_png(file, 3)[..., 0], tf.float32))

        values = tf.map_fn(redness, image, fn_output_signature=tf.float32)
        return {"value": values, "ok": tf.ones_like(values, tf.bool), "error": tf.fill(tf.shape(image), "")}

    path = base_path / str(version)
    tf.saved_model.save(tf.Module(), str(path), signatures=serve)
    return path


def _save(path: Path, answers: Mapping[str, Any]) -> Path:
    def outputs(ok: tf.Tensor) -> dict[str, tf.Tensor]:
        columns = {}
        for alias, answer in answers.items():
            column = tf.tile(answer[tf.newaxis], [tf.size(ok), *[1] * answer.shape.rank])
            good = tf.reshape(ok, [-1, *[1] * answer.shape.rank])
            columns[alias] = tf.where(good, column, tf.zeros_like(column))
        return {**columns, "ok": ok, "error": tf.where(ok, "", "no image")}

    class TaskModel(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image")], autograph=False)
        def serve(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
            return outputs(tf.logical_not(tf.strings.regex_full_match(image, "bad.*")))

        @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 3], tf.uint8, name="pixels")], autograph=False)
        def pixels(self, pixels: tf.Tensor) -> dict[str, tf.Tensor]:
            return outputs(tf.ones(tf.shape(pixels)[:1], tf.bool))

    module = TaskModel()
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve, "pixels": module.pixels})
    return path
