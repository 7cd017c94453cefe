"""Train a small Keras detector on drawings of shapes: an example for task detect.

    python examples/train/shapes.py

Writes shapes.keras, shapes.txt (the labels, one per line), drawings/ (pictures that the network was not trained on) and
drawings.json (where the shapes in them are) to the working directory.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw

LABELS = ["circle", "square", "triangle"]
COLOURS = ["#e4572e", "#17bebb", "#ffc914", "#76b041", "#f4f4f4", "#c06cf0"]
WIDTH, HEIGHT = 320, 240  # pixels of a picture
SIDE = 128  # pixels of the network's input
GRID = 16  # the network looks for the middle of a shape in each of GRID x GRID cells


class Shape(NamedTuple):
    """A shape in a picture: its label, and its box as ymin, xmin, ymax, xmax in pixels."""

    label: str
    box: tuple[int, int, int, int]


def draw_shapes(rng: random.Random) -> tuple[Image.Image, list[Shape]]:
    """Draw one to four shapes that don't touch, with random places, sizes and colours."""
    picture = Image.new("RGB", (WIDTH, HEIGHT), f"hsl({rng.randrange(360)}, 30%, {rng.randint(15, 35)}%)")
    draw = ImageDraw.Draw(picture)
    shapes: list[Shape] = []
    for _ in range(rng.randint(1, 6)):
        size = rng.randint(40, 110)
        top, left = rng.randint(0, HEIGHT - size), rng.randint(0, WIDTH - size)
        bottom, right = top + size, left + size
        if any(top < box[2] and box[0] < bottom and left < box[3] and box[1] < right for _, box in shapes):
            continue
        shape, colour = Shape(rng.choice(LABELS), (top, left, bottom, right)), rng.choice(COLOURS)
        inside = [left, top, right - 1, bottom - 1]
        if shape.label == "circle":
            draw.ellipse(inside, fill=colour)
        elif shape.label == "square":
            draw.rectangle(inside, fill=colour)
        else:
            draw.polygon([(left, bottom - 1), (right - 1, bottom - 1), ((left + right) / 2, top)], fill=colour)
        shapes.append(shape)
    return picture, shapes


def prepare(pictures: list[Image.Image]) -> tf.Tensor:
    """Return what the network receives: float32 [pictures, SIDE, SIDE, 3] in RGB, 0 to 1, undistorted with margins."""
    return tf.image.resize_with_pad(np.stack(pictures), SIDE, SIDE) / 255


def prepare_targets(drawings: list[list[Shape]]) -> dict[str, np.ndarray]:
    """Return what the network should answer.

    `scores` [pictures, cells, labels] is 1 in the cell in the middle of a shape; `boxes` [pictures, cells, 5] is the
    shape's box there, in fractions of the input, and a 1 that says so.
    """
    scores = np.zeros((len(drawings), GRID, GRID, len(LABELS)), np.float32)
    boxes = np.zeros((len(drawings), GRID, GRID, 5), np.float32)
    zoom, margin = SIDE / WIDTH, (SIDE - HEIGHT * SIDE / WIDTH) / 2
    for number, shapes in enumerate(drawings):
        for label, pixels in shapes:
            box = (np.array(pixels) * zoom + [margin, 0, margin, 0]) / SIDE
            row, column = ((box[:2] + box[2:]) / 2 * GRID).astype(int)
            scores[number, row, column, LABELS.index(label)] = 1
            boxes[number, row, column] = [*box, 1]
    return {"scores": scores.reshape(-1, GRID**2, len(LABELS)), "boxes": boxes.reshape(-1, GRID**2, 5)}


def build() -> keras.Model:
    """Return a network with outputs `scores` [n, cells, labels], logits, and `boxes` [n, cells, 4]."""
    images = keras.Input((SIDE, SIDE, 3))
    features = images
    for filters in (12, 24, 48):
        features = keras.layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(features)
    for dilation in (1, 2, 1):
        features = keras.layers.Conv2D(48, 3, padding="same", dilation_rate=dilation, activation="relu")(features)
    scores = keras.layers.Conv2D(len(LABELS), 1, bias_initializer=keras.initializers.Constant(-4))(features)
    distances = keras.layers.Conv2D(4, 1, activation="softplus")(features)  # of the edges from the middle of the cell
    middle = (np.stack(np.mgrid[:GRID, :GRID], axis=-1).reshape(1, -1, 2) + 0.5) / GRID
    outwards = np.array([-1, -1, 1, 1], np.float32) / GRID
    boxes = keras.layers.Reshape((-1, 4))(distances) * outwards + np.tile(middle, 2).astype(np.float32)
    return keras.Model(images, {"scores": keras.layers.Reshape((-1, len(LABELS)))(scores), "boxes": boxes})


def box_loss(targets: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    """Return the mean distance of the edges, in cells, where there is a shape."""
    distances = tf.reduce_mean(tf.abs(targets[..., :4] - boxes), axis=-1) * GRID
    return tf.reduce_sum(distances * targets[..., 4]) / tf.maximum(tf.reduce_sum(targets[..., 4]), 1)


def main() -> None:
    """Train, and write the files."""
    keras.utils.set_random_seed(1)
    rng = random.Random(1)
    pictures, drawings = zip(*(draw_shapes(rng) for _ in range(1200)), strict=True)
    network = build()
    losses = {"scores": keras.losses.BinaryCrossentropy(from_logits=True), "boxes": box_loss}
    schedule = keras.optimizers.schedules.CosineDecay(0.004, 12 * len(pictures) // 32)
    network.compile(keras.optimizers.Adam(schedule), losses, loss_weights={"scores": 200, "boxes": 1})
    network.fit(prepare(pictures), prepare_targets(drawings), batch_size=32, epochs=12, verbose=2)

    network.save("shapes.keras")
    Path("shapes.txt").write_text("\n".join(LABELS) + "\n")
    Path("drawings").mkdir(exist_ok=True)
    boxes = {}
    for number in range(1, 6):
        picture, shapes = draw_shapes(rng)
        picture.save(f"drawings/{number}.png")
        boxes[f"{number}.png"] = [shape._asdict() for shape in shapes]
    Path("drawings.json").write_text(json.dumps(boxes, indent=2) + "\n")

    print("bake it, with what prepare() does and what the network returns as options:")
    print("  bakery bake shapes.keras --labels shapes.txt --boxes yxyx --box-unit fractions \\")
    print("      --outputs logits --crop letterbox --resize bilinear --no-antialias --scale 0..1 --channels RGB")


if __name__ == "__main__":
    main()
