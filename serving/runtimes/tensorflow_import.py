"""Imports TensorFlow without Keras, which serving does not need, and without its log of the start."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

from savedmodel_bakery.serving import memory
from savedmodel_bakery.tensorflow_log import startup_log_hidden

_KERAS = ("keras", "tf_keras")


def import_tensorflow() -> None:
    """Import TensorFlow but not Keras, which takes a third of the time of the import and 110 MB.

    Keras can still be imported afterwards, as TensorFlow Text's layers do. Also lists the devices, which logs errors on
    machines without a GPU.
    """
    memory.use_system_allocator()
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in _KERAS if name not in modules]
    # None in sys.modules makes the import of a module fail (docs.python.org/3/reference/import.html#the-module-cache).
    modules.update(dict.fromkeys(hidden))
    try:
        with startup_log_hidden():
            importlib.import_module("tensorflow").config.list_physical_devices()
    finally:
        for name in hidden:
            del modules[name]
    gc.freeze()  # these objects live until the end, and scanning them would block requests for a tenth of a second
