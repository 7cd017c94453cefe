"""Train a small Keras network on drawings of flowers: an example of a model of your own.

    python examples/train/flowers.py

Writes flowers.keras, flowers.txt (the labels, one per line), photos/ (pictures that the network was not trained on)
and predictions.csv (what the network answers for them) to the working directory.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw

LABELS = ["daisy", "sunflower", "tulip"]
COLOURS = {"daisy": "#f4f4ee", "sunflower": "#f0b820", "tulip": "#c82838"}
WIDTH, HEIGHT = 160, 120  # pixels of a picture
SIDE = 64  # pixels of the network's input


def draw_flower(label: str, rng: random.Random) -> Image.Image:
    """Draw a flower on a meadow, with a random place, size, angle and background."""
    green = (rng.randint(70, 150), rng.randint(120, 190), rng.randint(40, 130))
    picture = Image.new("RGB", (WIDTH, HEIGHT), green)
    draw = ImageDraw.Draw(picture)
    for _ in range(40):  # grass
        x, y = rng.randrange(WIDTH), rng.randrange(HEIGHT)
        draw.line([x, y, x + rng.randint(-5, 5), y - 20], fill="#5c8c3c")
    radius = rng.randint(20, 40)
    x, y = rng.randint(radius, WIDTH - radius), rng.randint(radius, HEIGHT - radius)
    draw.line([x, y, x, HEIGHT], fill="#2f6a2a", width=4)  # the stem
    if label == "tulip":
        top, middle, side = y - radius, y - radius // 3, radius * 2 // 3
        points = [(x - side, top), (x - side // 2, middle), (x, top), (x + side // 2, middle), (x + side, top)]
        draw.polygon([*points, (x + side, y), (x, y + side), (x - side, y)], fill=COLOURS[label])
        return picture
    petals = rng.randint(9, 13) if label == "daisy" else rng.randint(16, 22)
    start = rng.uniform(0, math.pi)
    for number in range(petals):
        angle = start + 2 * math.pi * number / petals
        draw.line([x, y, x + radius * math.cos(angle), y + radius * math.sin(angle)], fill=COLOURS[label], width=7)
    disc = radius // 3 if label == "daisy" else radius // 2
    draw.ellipse([x - disc, y - disc, x + disc, y + disc], fill="#e8c030" if label == "daisy" else "#5a3a20")
    return picture


def draw_flowers(number: int, rng: random.Random) -> tuple[list[Image.Image], np.ndarray]:
    """Draw flowers of all kinds in turn; return the pictures and the indices of their labels."""
    classes = np.arange(number) % len(LABELS)
    return [draw_flower(LABELS[index], rng) for index in classes], classes


def prepare(pictures: Sequence[Any]) -> tf.Tensor:
    """Return what the network receives: float32 [pictures, SIDE, SIDE, 3] in RGB, from 0 to 1."""
    return tf.image.resize(np.stack(pictures), (SIDE, SIDE), method="bilinear", antialias=False) / 255


def main() -> None:
    """Train, measure, and write the files."""
    keras.utils.set_random_seed(1)
    rng = random.Random(1)
    pictures, classes = draw_flowers(900, rng)
    test_pictures, test_classes = draw_flowers(150, rng)
    network = keras.Sequential(
        [
            keras.layers.Input((SIDE, SIDE, 3)),
            keras.layers.Conv2D(12, 5, strides=2, activation="relu"),
            keras.layers.Conv2D(24, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.GlobalMaxPooling2D(),
            keras.layers.Dense(len(LABELS), activation="softmax"),
        ]
    )
    network.compile(keras.optimizers.Adam(0.003), "sparse_categorical_crossentropy", metrics=["accuracy"])
    network.fit(prepare(pictures), classes, batch_size=32, epochs=5, verbose=2)
    _, accuracy = network.evaluate(prepare(test_pictures), test_classes, verbose=0)

    network.save("flowers.keras")
    Path("flowers.txt").write_text("\n".join(LABELS) + "\n")
    Path("photos").mkdir(exist_ok=True)
    for picture, label in zip(test_pictures, LABELS, strict=False):  # the first of each class
        picture.save(f"photos/{label}.jpg", quality=90)

    photos = sorted(Path("photos").glob("*.jpg"))
    predictions = network.predict(prepare([np.asarray(Image.open(photo)) for photo in photos]), verbose=0)
    with Path("predictions.csv").open("w", newline="") as file:
        rows = ([photo.name, *row] for photo, row in zip(photos, predictions, strict=True))
        csv.writer(file).writerows([["file", *LABELS], *rows])

    print(f"accuracy on {len(test_pictures)} pictures that the network was not trained on: {accuracy:.3f}")
    print("bake it; what prepare() does is found from the predictions:")
    print("  bakery bake flowers.keras --labels flowers.txt --photos photos --predictions predictions.csv")


if __name__ == "__main__":
    main()
