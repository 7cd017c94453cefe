"""Runs models: one module per file format, and the batcher in front of them. Knows no transport and no model names."""

from __future__ import annotations

from savedmodel_bakery import tensorflow_import
from savedmodel_bakery.serving import process


def import_tensorflow() -> None:
    """Import TensorFlow but not Keras, which takes a third of the time of the import and 110 MB.

    TensorFlow Text's layers may import Keras afterwards.
    """
    process.use_system_allocator()
    tensorflow_import.import_tensorflow(without=tensorflow_import.KERAS)
