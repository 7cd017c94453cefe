"""Networks that look for red, green and blue: constructed, so that their answers are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw

LABELS = ("red", "green", "blue")
BACKGROUND = "#303030"


def draw(size: tuple[int, int], shapes: dict[str, tuple[float, float, float, float]]) -> Image.Image:
    """Draw rectangles by colour: ymin, xmin, ymax, xmax as parts of the height and width in `size`."""
    height, width = size
    picture = Image.new("RGB", (width, height), BACKGROUND)
    for colour, (top, left, bottom, right) in shapes.items():
        box = [left * width, top * height, right * width - 1, bottom * height - 1]
        ImageDraw.Draw(picture).rectangle(box, fill={"red": "#f00", "green": "#0f0", "blue": "#00f"}[colour])
    return picture


def colour_scores(pixels: tf.Tensor) -> tf.Tensor:
    """Return how red, green and blue pixels are, -1..1, from pixels 0..1."""
    others = tf.stack([tf.reduce_max(tf.gather(pixels, pair, axis=-1), -1) for pair in ((1, 2), (0, 2), (0, 1))], -1)
    return pixels - others


class Detector(tf.Module):
    """Returns a box per colour, and a worse one that overlaps it; scores are 0 for a colour that is missing."""

    def boxes_and_scores(self, pixels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return boxes [n, 6, 4] as ymin, xmin, ymax, xmax in fractions of the input, and scores [n, 6, 3]."""
        mask = colour_scores(pixels) > 0.5
        edges = []
        for axis in (2, 1):
            is_covered = tf.cast(tf.reduce_any(mask, axis), tf.int32)
            size = tf.shape(is_covered)[1]
            first = tf.argmax(is_covered, 1, output_type=tf.int32)
            end = size - tf.argmax(is_covered[:, ::-1], 1, output_type=tf.int32)
            edges.append([tf.cast(edge / size, tf.float32) for edge in (first, end)])
        (top, bottom), (left, right) = edges
        boxes = tf.stack([top, left, bottom, right], axis=-1)
        is_found = tf.cast(tf.reduce_any(mask, [1, 2]), tf.float32)
        scores = 0.9 * is_found[..., tf.newaxis] * tf.eye(3)
        return tf.concat([boxes + 0.02, boxes], 1), tf.concat([0.7 * scores, scores], 1)

    def __call__(self, pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs by name."""
        boxes, scores = self.boxes_and_scores(pixels)
        return {"boxes": boxes, "scores": scores}


def masks_in_boxes(pixels: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    """Return which parts of the boxes of red, green and blue have that colour: [n, 3, 28, 28], 0..1."""
    is_coloured = tf.cast(colour_scores(pixels) > 0.5, tf.float32)
    images = tf.shape(boxes)[0]
    masks = [
        tf.image.crop_and_resize(is_coloured[..., colour, tf.newaxis], boxes[:, colour], tf.range(images), [28, 28])
        for colour in range(3)
    ]
    return tf.stack(masks, 1)[..., 0]


class Masker(Detector):
    """Returns masks in the boxes too; those of the worse boxes are empty."""

    def __call__(self, pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs by name."""
        boxes, scores = self.boxes_and_scores(pixels)
        masks = masks_in_boxes(pixels, boxes[:, 3:])
        return {"boxes": boxes, "scores": scores, "masks": tf.concat([tf.zeros_like(masks), masks], 1)}


class Prototyper(Detector):
    """Returns what Ultralytics' models for segmentation return, with three classes and three prototypes."""

    def __call__(self, pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return columns [n, 4 + 3 + 3, boxes], of which four are in pixels, and prototypes [n, half, half, 3]."""
        edges, scores = self.boxes_and_scores(pixels)
        top, left, bottom, right = tf.unstack(edges * tf.cast(tf.tile(tf.shape(pixels)[1:3], [2]), tf.float32), axis=-1)
        boxes = tf.stack([(left + right) / 2, (top + bottom) / 2, right - left, bottom - top], -1)
        coefficients = 4 * tf.tile(tf.concat([-tf.eye(3), tf.eye(3)], 0)[tf.newaxis], [tf.shape(pixels)[0], 1, 1])
        filler = tf.zeros([tf.shape(pixels)[0], 14, 10])
        rows = tf.concat([tf.concat([boxes, scores, coefficients], -1), filler], 1)
        prototypes = tf.nn.avg_pool2d(colour_scores(pixels), 2, 2, "VALID") - 0.5
        return {"output0": tf.ensure_shape(tf.transpose(rows, [0, 2, 1]), [None, 10, 20]), "output1": prototypes}


def save_like_object_detection_api(path: Path, *, has_masks: bool = False) -> None:
    """Write a SavedModel as TensorFlow's Object Detection API exports it: one uint8 image, ids from 1, without NMS."""
    detector = Detector()

    @tf.function(input_signature=[tf.TensorSpec([1, None, None, 3], tf.uint8, name="input_tensor")], autograph=False)
    def detect(input_tensor: tf.Tensor) -> dict[str, tf.Tensor]:
        pixels = tf.cast(input_tensor, tf.float32) / 255
        boxes, scores = detector.boxes_and_scores(pixels)
        boxes, scores = boxes[:, 3:], tf.linalg.diag_part(scores[:, 3:])
        masks = {"detection_masks": tf.ensure_shape(masks_in_boxes(pixels, boxes), [1, 3, 28, 28])}
        return {
            **(masks if has_masks else {}),
            "detection_boxes": tf.ensure_shape(boxes, [1, 3, 4]),
            "detection_scores": tf.ensure_shape(scores, [1, 3]),
            "detection_classes": tf.constant([[1.0, 2.0, 4.0]]),
            "num_detections": tf.constant([3.0]),
            "raw_detection_boxes": boxes,
        }

    exported = tf.Module()
    exported.__call__ = detect
    tf.saved_model.save(exported, str(path), signatures=detect)


class Pointer(tf.Module):
    """Returns the centre of each colour, as y and x in fractions of the input, and a score: [n, 3, 3]."""

    def __call__(self, pixels: tf.Tensor) -> tf.Tensor:
        """Return the points."""
        boxes, scores = Detector().boxes_and_scores(pixels)
        centres = (boxes[:, 3:, :2] + boxes[:, 3:, 2:]) / 2
        return tf.concat([centres, tf.reduce_max(scores[:, 3:], -1, keepdims=True)], -1)


def save_like_movenet(path: Path) -> None:
    """Write a SavedModel with the signature of MoveNet at TF Hub: one int32 image, 17 points; the first is red's."""

    @tf.function(input_signature=[tf.TensorSpec([1, 192, 192, 3], tf.int32, name="input")], autograph=False)
    def serve(input: tf.Tensor) -> dict[str, tf.Tensor]:  # noqa: A002
        points = Pointer()(tf.cast(input, tf.float32) / 255)
        return {"output_0": tf.tile(points[:, tf.newaxis, :1], [1, 1, 17, 1])}

    tf.saved_model.save(tf.Module(), str(path), signatures=serve)


class Segmenter(tf.Module):
    """Returns scores for the background, red, green and blue, [n, height / 2, width / 2, 4]."""

    def __call__(self, pixels: tf.Tensor) -> tf.Tensor:
        """Return logits."""
        scores = colour_scores(tf.nn.avg_pool2d(pixels, 2, 2, "VALID"))
        return tf.concat([tf.fill(tf.shape(scores[..., :1]), 0.5), scores], -1)


def detector() -> tf.Module:
    """Return a detector, for `--model shape_models:detector`."""
    return Detector()


def masker() -> tf.Module:
    """Return a detector with masks, for `--model shape_models:masker`."""
    return Masker()


def prototyper() -> tf.Module:
    """Return a network like those of Ultralytics, for `--model shape_models:prototyper`."""
    return Prototyper()


def pointer() -> tf.Module:
    """Return a network for points, for `--model shape_models:pointer`."""
    return Pointer()


def segmenter() -> tf.Module:
    """Return a segmenter, for `--model shape_models:segmenter`."""
    return Segmenter()


def colour_network(weights: list[list[float]], bias: list[float], activation: str | None = None) -> Any:
    """Return a Keras model that computes `weights` times the mean colour, 0..1, plus `bias`."""
    import keras

    images = keras.Input((8, 8, 3))
    dense = keras.layers.Dense(len(bias), activation=activation)
    outputs = dense(keras.layers.GlobalAveragePooling2D(name="mean")(images))
    dense.set_weights([np.float32(weights).T, np.float32(bias)])
    return keras.Model(images, outputs)


def classifier() -> Any:
    """Return a classifier of the mean colour."""
    return colour_network((8 * np.eye(3)).tolist(), [0.0] * 3, "softmax")


def convolutional_classifier() -> Any:
    """Return `classifier` after a convolution that changes nothing, for options that are about convolutions."""
    import keras

    images = keras.Input((8, 8, 3))
    convolution = keras.layers.Conv2D(3, 1)
    outputs = classifier()(convolution(images))
    convolution.set_weights([np.eye(3, dtype=np.float32).reshape(1, 1, 3, 3), np.zeros(3, np.float32)])
    return keras.Model(images, outputs)


def tagger() -> Any:
    """Return a network that says how much red, green and blue there is, each with a sigmoid."""
    return colour_network((8 * np.eye(3)).tolist(), [-4.0] * 3, "sigmoid")


def negative() -> Any:
    """Return a network that makes the negative of a picture of 8 x 8 pixels."""
    import keras

    image = keras.Input((8, 8, 3))
    return keras.Model(image, 1 - image)


def two_heads() -> Any:
    """Return a network that measures red, and says which colour an image has."""
    import keras

    images = keras.Input((8, 8, 3))
    means = keras.layers.GlobalAveragePooling2D()(images)
    heads = {"redness": keras.layers.Dense(1, name="redness"), "colour": keras.layers.Dense(3, name="colour")}
    model = keras.Model(images, {name: head(means) for name, head in heads.items()})
    heads["redness"].set_weights([np.float32([[255], [0], [0]]), np.zeros(1, np.float32)])
    heads["colour"].set_weights([8 * np.eye(3, dtype=np.float32), np.zeros(3, np.float32)])
    return model


def decider() -> Any:
    """Return a network that says whether an image is green rather than red."""
    return colour_network([[-4, 4, 0]], [0.0], "sigmoid")


def meter() -> Any:
    """Return a network that measures red and green, 0..255."""
    return colour_network([[255, 0, 0], [0, 255, 0]], [0.0, 0.0])
