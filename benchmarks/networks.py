"""The networks that all candidates serve, each in one folder, and the SavedModels made from them.

    python -m benchmarks.networks NAME FOLDER

All candidates use the same weights: peers read `network.keras`, and our bake reads the same source.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

KERAS_FILE = "network.keras"
WEIGHTS_FILE = "network.weights.h5"
DESCRIPTION_FILE = "network.json"


@dataclass(frozen=True)
class Description:
    """What a server of a network needs beside its weights.

    Attributes:
        size: height and width of the input, in pixels.
        mean: the input is (pixel - mean) / std, of RGB pixels 0..255.
        std: see `mean`.
        labels: class names in the order of class ids.
        is_trained: whether its labels can be checked.
    """

    size: int
    mean: float
    std: float
    labels: list[str]
    is_trained: bool


@dataclass(frozen=True)
class Choice:
    """A network that can be measured.

    Attributes:
        build: returns the Keras network; imports TensorFlow.
        description: the description of the input; its labels are empty.
        bake: options of `bakery bake`; {weights} is the folder's weights file.
    """

    build: Callable[[], Any]
    description: Description
    bake: tuple[str, ...]


def _lite0() -> Any:
    from savedmodel_bakery.exporter.sources import efficientnet_lite

    return efficientnet_lite.load(0)


def _untrained(name: str) -> Any:
    import keras

    keras.utils.set_random_seed(0)
    return getattr(keras.applications, name)(weights=None)


def vit_b16() -> Any:
    """Return the vision transformer ViT-B/16 (Dosovitskiy et al. 2021), with random weights."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    image = keras.Input((224, 224, 3))
    rows = layers.Reshape((196, 768))(layers.Conv2D(768, 16, strides=16)(image))
    rows = layers.ZeroPadding1D((1, 0))(rows)  # the row of the class
    positions = layers.Embedding(197, 768)(keras.ops.arange(197))
    rows = layers.Add()([rows, positions[None]])
    for _ in range(12):
        normed = layers.LayerNormalization(epsilon=1e-6)(rows)
        rows = layers.Add()([rows, layers.MultiHeadAttention(12, 64)(normed, normed)])
        wide = layers.Dense(3072, activation="gelu")(layers.LayerNormalization(epsilon=1e-6)(rows))
        rows = layers.Add()([rows, layers.Dense(768)(wide)])
    normed = layers.LayerNormalization(epsilon=1e-6)(rows)
    return keras.Model(image, layers.Dense(1000, activation="softmax")(normed[:, 0]))


CHOICES = {
    "efficientnet-lite0": Choice(
        _lite0, Description(224, 127.0, 128.0, [], is_trained=True), ("--model", "efficientnet-lite0")
    ),
    "inception-v3": Choice(
        partial(_untrained, "InceptionV3"),
        Description(299, 127.5, 127.5, [], is_trained=False),
        ("--model", "keras:InceptionV3", "--weights", "{weights}"),
    ),
    # Its own input is BGR less one mean per channel. Peers give it RGB less one mean, which costs the same.
    "resnet50": Choice(
        partial(_untrained, "ResNet50"),
        Description(224, 116.0, 1.0, [], is_trained=False),
        ("--model", "keras:ResNet50", "--weights", "{weights}"),
    ),
}


def read_description(folder: Path) -> Description:
    """Read the description in a network's folder."""
    return Description(**json.loads((folder / DESCRIPTION_FILE).read_text()))


def write(name: str, folder: Path) -> None:
    """Write a network's folder."""
    from savedmodel_bakery.exporter.resources import read_class_names

    network = CHOICES[name].build()
    folder.mkdir(parents=True, exist_ok=True)
    network.save(folder / KERAS_FILE)
    network.save_weights(folder / WEIGHTS_FILE)
    values = asdict(CHOICES[name].description) | {"labels": read_class_names("imagenet")}
    (folder / DESCRIPTION_FILE).write_text(json.dumps(values))


def prepare(name: str, folder: Path) -> None:
    """Write a network's folder in a separate process, unless it exists."""
    if not (folder / DESCRIPTION_FILE).is_file():
        _run("-m", "benchmarks.networks", name, str(folder))


def export_baseline(folder: Path, base_path: Path) -> None:
    """Export version 1 of the baseline."""
    base_path.mkdir(parents=True)
    _run("-m", "benchmarks.baseline", str(folder), str(base_path / "1"))


def bake(name: str, folder: Path, base_path: Path, *, options: Sequence[str]) -> None:
    """Bake version 1 with our exporter, with further options of `bakery bake`."""
    source = [option.format(weights=folder / WEIGHTS_FILE) for option in CHOICES[name].bake]
    _run(
        "-m",
        "savedmodel_bakery.exporter",
        "bake",
        *source,
        "--out",
        str(base_path.parent),
        "--name",
        base_path.name,
        *options,
    )


def _run(*arguments: str) -> None:
    process = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"python {' '.join(arguments)} failed:\n{process.stderr}")


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
