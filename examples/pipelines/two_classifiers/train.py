"""Train two small Keras classifiers of flowers, to be averaged by the pipeline in two_classifiers.toml.

    python train.py

Needs flowers.py (examples/train/flowers.py) beside it. Writes sharp.keras, blurred.keras, flowers.txt (the labels, one
per line) and photos/ (pictures that the networks were not trained on) to the working directory.
"""

from __future__ import annotations

import random
from pathlib import Path

import flowers
import keras

KERNELS = {"sharp": 3, "blurred": 7}  # pixels that the first layer of each network looks at


def main() -> None:
    """Train, measure, and write the files."""
    keras.utils.set_random_seed(1)
    rng = random.Random(1)
    pictures, classes = flowers.draw_flowers(600, rng)
    test_pictures, test_classes = flowers.draw_flowers(150, rng)
    for name, kernel in KERNELS.items():
        network = keras.Sequential(
            [
                keras.layers.Input((flowers.SIDE, flowers.SIDE, 3)),
                keras.layers.Conv2D(12, kernel, strides=4, activation="relu"),
                keras.layers.Conv2D(24, 3, strides=2, activation="relu"),
                keras.layers.GlobalMaxPooling2D(),
                keras.layers.Dense(len(flowers.LABELS), activation="softmax"),
            ]
        )
        network.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"])
        network.fit(flowers.prepare(pictures), classes, batch_size=32, epochs=4, verbose=2)
        _, accuracy = network.evaluate(flowers.prepare(test_pictures), test_classes, verbose=0)
        network.save(f"{name}.keras")
        print(f"accuracy of {name}.keras on {len(test_pictures)} other pictures: {accuracy:.3f}")
    Path("flowers.txt").write_text("\n".join(flowers.LABELS) + "\n")
    Path("photos").mkdir(exist_ok=True)
    for picture, label in zip(test_pictures, flowers.LABELS, strict=False):  # the first of each class
        picture.save(f"photos/{label}.jpg", quality=90)


if __name__ == "__main__":
    main()
