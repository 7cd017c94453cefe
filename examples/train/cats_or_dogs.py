"""Train a small Keras network to tell drawings of cats from drawings of dogs: an example with one output.

    python examples/train/cats_or_dogs.py

Follows Keras's tutorial "Image classification from scratch": the network scales pixels itself, and its only output is
the logit of the second label. Writes cats_or_dogs.keras, cats_or_dogs.txt (the labels, one per line) and pets/
(pictures that the network was not trained on) to the working directory.
"""

from __future__ import annotations

import random
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw

LABELS = ["cat", "dog"]
COLOURS = ["#3a3a3e", "#8a5a34", "#c8a878", "#e8e0d4", "#b06a2c"]  # of the fur, for both
WIDTH, HEIGHT = 160, 120  # pixels of a picture
SIDE = 64  # pixels of the network's input


def draw_pet(label: str, rng: random.Random) -> Image.Image:
    """Draw a face: a cat has pointed ears and whiskers, a dog has hanging ears and a snout."""
    picture = Image.new("RGB", (WIDTH, HEIGHT), (rng.randint(90, 220), rng.randint(120, 220), rng.randint(90, 220)))
    draw = ImageDraw.Draw(picture)
    fur = rng.choice(COLOURS)
    radius = rng.randint(24, 36)
    x, y = rng.randint(radius + 10, WIDTH - radius - 10), rng.randint(radius + 16, HEIGHT - radius - 4)
    if label == "cat":
        for side in (-1, 1):
            tip = (x + side * radius * 0.9, y - radius * 1.5)
            draw.polygon([(x + side * radius * 0.2, y - radius * 0.8), tip, (x + side * radius, y)], fill=fur)
    draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=fur)
    eye, third = radius // 6, radius // 3
    for side in (-1, 1):
        draw.ellipse([x + side * third - eye, y - third - eye, x + side * third + eye, y - third + eye], fill="#f0d860")
        if label == "cat":
            for end in (-4, 3, 10):
                draw.line([x, y + third, x + side * radius * 1.4, y + third + end], fill="#ffffff")
        else:
            ear = [x + side * radius * 1.05, y + radius * 0.1]
            draw.ellipse([ear[0] - third, ear[1] - radius * 0.9, ear[0] + third, ear[1] + radius * 0.7], fill="#503018")
    if label == "dog":
        draw.ellipse([x - third, y, x + third, y + radius * 0.8], fill="#f4ece0")
    draw.ellipse([x - eye, y + third - eye, x + eye, y + third + eye], fill="#202020")
    return picture


def draw_pets(number: int, rng: random.Random) -> tuple[list[Image.Image], np.ndarray]:
    """Draw cats and dogs in turn; return the pictures and the indices of their labels."""
    classes = np.arange(number) % len(LABELS)
    return [draw_pet(LABELS[index], rng) for index in classes], classes


def prepare(pictures: list[Image.Image]) -> tf.Tensor:
    """Return what the network receives: float32 [pictures, SIDE, SIDE, 3] in RGB, from 0 to 255."""
    return tf.image.resize(np.stack(pictures), (SIDE, SIDE), method="bilinear", antialias=False)


def main() -> None:
    """Train, measure, and write the files."""
    keras.utils.set_random_seed(1)
    rng = random.Random(1)
    pictures, classes = draw_pets(600, rng)
    test_pictures, test_classes = draw_pets(100, rng)
    network = keras.Sequential(
        [
            keras.layers.Input((SIDE, SIDE, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(12, 5, strides=2, activation="relu"),
            keras.layers.Conv2D(24, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.GlobalMaxPooling2D(),
            keras.layers.Dense(1),
        ]
    )
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    network.compile(keras.optimizers.Adam(0.003), loss, metrics=[keras.metrics.BinaryAccuracy(threshold=0)])
    network.fit(prepare(pictures), classes, batch_size=32, epochs=6, verbose=2)
    _, accuracy = network.evaluate(prepare(test_pictures), test_classes, verbose=0)

    network.save("cats_or_dogs.keras")
    Path("cats_or_dogs.txt").write_text("\n".join(LABELS) + "\n")
    Path("pets").mkdir(exist_ok=True)
    for picture, label in zip(test_pictures, LABELS, strict=False):  # the first of each
        picture.save(f"pets/{label}.jpg", quality=90)

    print(f"accuracy on {len(test_pictures)} pictures that the network was not trained on: {accuracy:.3f}")
    print("bake it, with what prepare() does and what the network returns as options:")
    print("  bakery bake cats_or_dogs.keras --labels cats_or_dogs.txt --outputs logits \\")
    print("      --crop none --resize bilinear --no-antialias")


if __name__ == "__main__":
    main()
