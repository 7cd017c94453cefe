"""Imports TensorFlow without Keras, which serving does not need, and without its log of the start."""

from __future__ import annotations

import gc
import importlib

from savedmodel_bakery.hidden_modules import hidden_modules
from savedmodel_bakery.serving import memory
from savedmodel_bakery.tensorflow_log import startup_log_hidden


def import_tensorflow() -> None:
    """Import TensorFlow but not Keras, which takes a third of the time of the import and 110 MB.

    Keras can still be imported afterwards, as TensorFlow Text's layers do. Also lists the devices, which logs errors on
    machines without a GPU.
    """
    memory.use_system_allocator()
    with startup_log_hidden(), hidden_modules("keras", "tf_keras"):
        importlib.import_module("tensorflow").config.list_physical_devices()
    gc.freeze()  # these objects live until the end, and scanning them would block requests for a tenth of a second
