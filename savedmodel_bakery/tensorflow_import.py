"""Imports TensorFlow faster, and without the messages that it writes to stderr while it starts."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from savedmodel_bakery.tensorflow_log import startup_log_hidden

KERAS = ("keras", "tf_keras")
"""The packages of Keras, for `without`."""


def import_tensorflow(*, without: tuple[str, ...]) -> Any:
    """Import TensorFlow and list its devices, which logs errors if there is no GPU.

    The packages of `without` are not imported with it, but can still be imported afterwards.
    """
    is_first, collects_garbage = "tensorflow" not in sys.modules, gc.isenabled()
    gc.disable()
    try:
        with startup_log_hidden(), _hidden_modules(without):
            tensorflow = importlib.import_module("tensorflow")
            tensorflow.config.list_physical_devices()
        if is_first:
            # The new objects live until the end. Scanning them takes a tenth of the time of the import, and later would
            # block requests for a tenth of a second, and the exit for half a second.
            gc.freeze()
        return tensorflow
    finally:
        if collects_garbage:
            gc.enable()


@contextmanager
def _hidden_modules(names: tuple[str, ...]) -> Iterator[None]:
    """Make imports of these modules fail in the block, unless they have been imported already."""
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in names if name not in modules]
    # None makes the import of a module fail (docs.python.org/3/reference/import.html#the-module-cache).
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]
