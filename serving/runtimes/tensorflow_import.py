"""Imports TensorFlow without Keras, which serving does not need."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

_KERAS = ("keras", "tf_keras")


def import_tensorflow() -> None:
    """Import TensorFlow but not Keras, which takes a third of the time of the import and 110 MB.

    Keras can still be imported afterwards, as TensorFlow Text's layers do.
    """
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in _KERAS if name not in modules]
    # None in sys.modules makes the import of a module fail (docs.python.org/3/reference/import.html#the-module-cache).
    modules.update(dict.fromkeys(hidden))
    try:
        importlib.import_module("tensorflow")
    finally:
        for name in hidden:
            del modules[name]
    gc.freeze()  # these objects live until the end, and scanning them would block requests for a tenth of a second
