"""A common hand-written export, with which the candidates are compared.

    python -m benchmarks.baseline FOLDER OUT

`tf.map_fn` decodes base64 (web-safe only) and JPEG and resizes, bilinear and without a crop. The Keras network with its
variables and the label of the largest score follow. Compare its speed, not its accuracy.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.networks import KERAS_FILE, Description, read_description


class Baseline(tf.Module):
    """A network from a folder of `benchmarks.networks`, with one signature: image string [batch] → output_0."""

    def __init__(self, network: Any, description: Description) -> None:
        super().__init__()
        # Tracked here: tensorflow_model_server cannot restore variables that only a Keras 3 model tracks.
        self._variables = [variable.value for variable in network.variables]
        self._network = network
        self._description = description
        self._labels = tf.constant(description.labels)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image")])
    def serve(self, image: Any) -> Any:
        """Return the label of each image."""
        pixels = tf.map_fn(self._pixels, image, fn_output_signature=tf.float32)
        scores = self._network(pixels, training=False)
        return tf.map_fn(lambda row: tf.gather(self._labels, tf.argmax(row)), scores, fn_output_signature=tf.string)

    def _pixels(self, text: Any) -> Any:
        size = self._description.size
        decoded = tf.io.decode_jpeg(tf.io.decode_base64(text), channels=3)
        scaled = tf.image.resize(tf.image.convert_image_dtype(decoded, tf.float32), (size, size)) * 255.0
        return tf.reshape((scaled - self._description.mean) / self._description.std, (size, size, 3))


def main(folder: Path, out: Path) -> None:
    """Export the network in `folder` to the version folder `out`."""
    network = tf.keras.models.load_model(folder / KERAS_FILE)
    module = Baseline(network, read_description(folder))
    tf.saved_model.save(module, str(out), signatures={"serving_default": module.serve})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
