"""Imports TensorFlow without the messages that it writes to stderr while it starts."""

from __future__ import annotations

import gc
import importlib
import sys

from savedmodel_bakery.hidden_modules import hidden_modules
from savedmodel_bakery.tensorflow_log import startup_log_hidden


def import_tensorflow() -> None:
    """Import TensorFlow and list its devices, which logs errors on machines without a GPU.

    Its import imports Keras, which would import matplotlib and pandas if they are installed: that takes a second, and a
    bake needs neither. They can still be imported afterwards.
    """
    if sys.modules.get("tensorflow") is not None:
        return
    with startup_log_hidden(), hidden_modules("matplotlib", "pandas"):
        tensorflow = importlib.import_module("tensorflow")
        tensorflow.config.list_physical_devices()
    tensorflow.get_logger().setLevel("ERROR")
    gc.freeze()  # these objects live until the end, and scanning them takes half a second at the exit alone
