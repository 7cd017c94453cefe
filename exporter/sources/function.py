"""Source: `package.module:callable`, a user's function that returns a Keras model or a tf.Module."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.sources.network import Network, from_keras_model

NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def read(model: str, *, layer: str | None = None) -> Network:
    """Import the module, also from the working directory, and call the callable without arguments."""
    function = import_callable(model)
    try:
        network = function()
    except Exception as error:  # user code can raise anything
        raise SourceError(f"{model} failed with {type(error).__name__}: {error}") from error
    import tensorflow as tf

    # With some backends a Keras model is a tf.Module too.
    if isinstance(network, tf.Module) and callable(network) and not hasattr(network, "input_shape"):
        if layer is not None:
            raise SourceError(f"--layer cannot be used with {model}: it returns a tf.Module, which has no layers")
        return Network(network)
    return from_keras_model(network, model, layer)


def import_callable(name: str) -> Callable[..., Any]:
    """Import `package.module:callable`; the module may be in the working directory."""
    if not NAME.fullmatch(name):
        raise SourceError(f"invalid function name {name!r}: must be package.module:callable")
    module_name, _, attributes = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        target = importlib.import_module(module_name)
        for attribute in attributes.split("."):
            target = getattr(target, attribute)
    except Exception as error:  # user code can raise anything
        raise SourceError(f"cannot import {name!r}: {type(error).__name__}: {error}") from error
    if not callable(target):
        raise SourceError(f"{name!r} is a {type(target).__name__}: must be callable")
    return target
