"""Train a small Keras network to name the fruits in a drawing: an example with any number of labels per picture.

    python examples/train/fruits.py

Writes fruits.keras, fruits.txt (the labels, one per line) and tables/ (pictures that the network was not trained on) to
the working directory.
"""

from __future__ import annotations

import random
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw

LABELS = ["apple", "banana", "grapes"]
WIDTH, HEIGHT = 160, 120  # pixels of a picture
SIDE = 64  # pixels of the network's input


def draw_fruit(label: str, draw: ImageDraw.ImageDraw, left: int, rng: random.Random) -> None:
    """Draw a fruit with a random size and height in the third of the table that begins at `left`."""
    size = rng.randint(28, 40)
    x, y = left + rng.randint(2, 10), rng.randint(10, HEIGHT - 50)
    if label == "apple":
        draw.ellipse([x, y, x + size, y + size], fill="#c42430")
        draw.line([x + size // 2, y + 4, x + size // 2 + 4, y - 7], fill="#503018", width=3)
    elif label == "banana":
        draw.arc([x, y - size // 2, x + size, y + size], 20, 160, fill="#ecd030", width=11)
    else:
        for row in range(3):
            for column in range(3 - row):
                place = (x + column * 13 + row * 6, y + row * 11)
                draw.ellipse([*place, place[0] + 13, place[1] + 13], fill="#58307c")


def draw_table(present: np.ndarray, rng: random.Random) -> Image.Image:
    """Draw a table with the fruits that are present, in random places."""
    wood = rng.randint(120, 200)
    picture = Image.new("RGB", (WIDTH, HEIGHT), (wood, wood * 4 // 5, wood * 3 // 5))
    draw = ImageDraw.Draw(picture)
    for y in range(rng.randint(5, 20), HEIGHT, 24):  # the boards
        draw.line([0, y, WIDTH, y], fill="#6a4a2c")
    places = rng.sample([0, 52, 104], len(LABELS))
    for label, left, is_present in zip(LABELS, places, present, strict=True):
        if is_present:
            draw_fruit(label, draw, left, rng)
    return picture


def draw_tables(number: int, rng: random.Random) -> tuple[list[Image.Image], np.ndarray]:
    """Draw tables; return the pictures, and 1 for each label that a picture has: float32 [pictures, labels]."""
    # The bits of the numbers from 0: first no fruit, then each combination in turn.
    present = (np.arange(number)[:, np.newaxis] >> np.arange(len(LABELS))) & 1
    return [draw_table(row, rng) for row in present], present.astype(np.float32)


def prepare(pictures: list[Image.Image]) -> tf.Tensor:
    """Return what the network receives: float32 [pictures, SIDE, SIDE, 3] in RGB, from 0 to 1."""
    return tf.image.resize(np.stack(pictures), (SIDE, SIDE), method="bilinear", antialias=False) / 255


def main() -> None:
    """Train, measure, and write the files."""
    keras.utils.set_random_seed(1)
    rng = random.Random(1)
    pictures, present = draw_tables(800, rng)
    test_pictures, test_present = draw_tables(160, rng)
    network = keras.Sequential(
        [
            keras.layers.Input((SIDE, SIDE, 3)),
            keras.layers.Conv2D(12, 5, strides=2, activation="relu"),
            keras.layers.Conv2D(24, 3, strides=2, activation="relu"),
            keras.layers.GlobalMaxPooling2D(),
            keras.layers.Dense(len(LABELS), activation="sigmoid"),
        ]
    )
    network.compile(keras.optimizers.Adam(0.003), "binary_crossentropy", metrics=["binary_accuracy"])
    network.fit(prepare(pictures), present, batch_size=32, epochs=6, verbose=2)
    _, accuracy = network.evaluate(prepare(test_pictures), test_present, verbose=0)

    network.save("fruits.keras")
    Path("fruits.txt").write_text("\n".join(LABELS) + "\n")
    Path("tables").mkdir(exist_ok=True)
    for picture, row in list(zip(test_pictures, test_present, strict=True))[: 2 ** len(LABELS)]:
        names = [label for label, is_present in zip(LABELS, row, strict=True) if is_present]
        picture.save(f"tables/{'_'.join(names) or 'nothing'}.jpg", quality=90)

    print(f"labels that are right on {len(test_pictures)} pictures that were not trained on: {accuracy:.3f}")
    print("bake it, with what prepare() does and what the network returns as options:")
    print("  bakery bake fruits.keras --labels fruits.txt --outputs probabilities \\")
    print("      --crop none --resize bilinear --no-antialias --scale 0..1 --channels RGB")


if __name__ == "__main__":
    main()
