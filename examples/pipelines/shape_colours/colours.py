"""Train a small Keras classifier of the colour of a shape: the second network of the pipeline in shape_colours.toml.

    python colours.py

Needs shapes.py (examples/train/shapes.py) beside it. Writes colours.keras and colours.txt (the labels, one per line) to
the working directory.
"""

from __future__ import annotations

import random
from pathlib import Path

import keras
import numpy as np
import shapes
from PIL import Image

LABELS = {"#e4572e": "red", "#17bebb": "blue", "#ffc914": "yellow", "#76b041": "green", "#f4f4f4": "white",
          "#c06cf0": "violet"}  # fmt: skip
SIDE = 32  # pixels of the network's input


def draw_crops(number: int, rng: random.Random) -> tuple[np.ndarray, np.ndarray]:
    """Cut shapes out of drawings, with some of what is around them; return the pixels 0 to 1 and indices of labels."""
    names = list(LABELS)
    crops, classes = [], []
    while len(crops) < number:
        picture, drawn = shapes.draw_shapes(rng)
        for _, (top, left, bottom, right) in drawn:
            red, green, blue = picture.getpixel(((left + right) // 2, (top + bottom) // 2))
            edges = [
                min(max(edge + rng.randint(-5, 5), 0), side)
                for edge, side in zip((left, top, right, bottom), picture.size * 2, strict=True)
            ]
            crops.append(np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR, edges)))
            classes.append(names.index(f"#{red:02x}{green:02x}{blue:02x}"))
    return np.stack(crops) / np.float32(255), np.array(classes)


def main() -> None:
    """Train, measure, and write the files."""
    keras.utils.set_random_seed(1)
    rng = random.Random(1)
    network = keras.Sequential(
        [
            keras.layers.Input((SIDE, SIDE, 3)),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(24, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(len(LABELS), activation="softmax"),
        ]
    )
    network.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    network.fit(*draw_crops(1500, rng), batch_size=32, epochs=5, verbose=2)
    _, accuracy = network.evaluate(*draw_crops(200, rng), verbose=0)
    network.save("colours.keras")
    Path("colours.txt").write_text("\n".join(LABELS.values()) + "\n")
    print(f"accuracy on 200 crops that the network was not trained on: {accuracy:.3f}")


if __name__ == "__main__":
    main()
