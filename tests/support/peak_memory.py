"""A process that reads batches of images through the image graph, and prints by how much each raised its peak memory.

python tests/support/peak_memory.py IMAGES.pickle

IMAGES contains the values of a recipe, a batch to warm up with, and the batches to measure.
"""

from __future__ import annotations

import json
import pickle
import re
import sys
from pathlib import Path

import tensorflow as tf

from savedmodel_bakery.exporter.image.per_image import read_images
from savedmodel_bakery.exporter.recipe import Recipe


def resident_bytes(name: str) -> int:
    """Return the resident memory of this process, `VmRSS`, or its peak, `VmHWM`."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) * 1024


def main() -> None:
    """Print, as JSON, the errors of each batch and by how many bytes it raised the peak."""
    values, warm_up, batches = pickle.loads(Path(sys.argv[1]).read_bytes())
    preprocessing = Recipe.from_values(values).preprocessing
    read = tf.function(
        lambda images: read_images(images, tf.range(tf.size(images)), tf.size(images), preprocessing),
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    read(tf.constant(warm_up))
    results = []
    for batch in batches:
        images = tf.constant(batch)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = resident_bytes("VmRSS")
        errors = read(images).errors
        rise = resident_bytes("VmHWM") - before
        results.append({"errors": [error.decode() for error in errors.numpy()], "rise": rise})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
