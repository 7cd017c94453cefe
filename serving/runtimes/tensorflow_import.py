"""TensorFlow without Keras, which nobody needs who serves."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

_KERAS = ("keras", "tf_keras")


def import_tensorflow() -> None:
    """Import TensorFlow, but not Keras with it: that would be a third of the time, and 110 MB.

    Who needs Keras can import it afterwards, as TensorFlow Text's layers do.
    """
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in _KERAS if name not in modules]
    # An import of what is None fails (docs.python.org/3/reference/import.html#the-module-cache).
    modules.update(dict.fromkeys(hidden))
    try:
        importlib.import_module("tensorflow")
    finally:
        for name in hidden:
            del modules[name]
    gc.freeze()  # what is there stays, and looking at all of it takes a tenth of a second, in which nobody is answered
