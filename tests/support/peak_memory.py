"""A process of its own that reads batches of images through the image graph, and prints what memory each took.

python tests/support/peak_memory.py IMAGES.pickle

IMAGES holds the recipe's fields, a batch to begin with, and the batches that are measured.
"""

from __future__ import annotations

import json
import pickle
import resource
import sys
from pathlib import Path

import tensorflow as tf

from savedmodel_bakery.exporter.image.per_image import read_images
from savedmodel_bakery.exporter.recipe import Recipe


def peak_bytes() -> int:
    """The most memory that was resident so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Print, as JSON, the errors of each batch and by how many bytes it raised the peak."""
    fields, first, batches = pickle.loads(Path(sys.argv[1]).read_bytes())
    preprocessing = Recipe.from_values(fields).preprocessing
    read = tf.function(
        lambda image: read_images(image, preprocessing), input_signature=[tf.TensorSpec([None], tf.string)]
    )
    read(tf.constant(first))
    found = []
    for batch in batches:
        before = peak_bytes()
        _, _, errors = read(tf.constant(batch))
        found.append({"errors": [error.decode() for error in errors.numpy()], "rise": peak_bytes() - before})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
