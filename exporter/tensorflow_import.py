"""Imports TensorFlow for the exporter."""

from __future__ import annotations

from savedmodel_bakery import tensorflow_import


def import_tensorflow() -> None:
    """Import TensorFlow, and Keras with it but not matplotlib and pandas, which take a second; a bake needs neither."""
    tensorflow_import.import_tensorflow(without=("matplotlib", "pandas")).get_logger().setLevel("ERROR")
