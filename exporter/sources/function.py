"""Source: `package.module:callable`, a function of the user's own that returns a Keras model or a tf.Module."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from exporter.errors import SourceError
from exporter.sources.network import Network, SourceOptions, of_keras_model

FORM = "package.module:callable returning a Keras model or a tf.Module"


def matches(model: str) -> bool:
    """Whether `model` is two dotted names with a colon between them."""
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", model) is not None


def read(model: str, options: SourceOptions) -> Network:
    """Import the module, from the working directory too, and call the callable without arguments.

    Raises:
        SourceError: it can't be imported, is no callable, fails, or gives something else.
    """
    options.refuse(model)
    module_name, _, attribute = model.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.import_module(module_name)
        for name in attribute.split("."):
            found = getattr(found, name)
    except Exception as error:  # it is the user's code
        raise SourceError(f"model {model!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise SourceError(f"model {model!r} is a {type(found).__name__}; allowed is a callable without arguments")
    try:
        made = found()
    except Exception as error:  # it is the user's code
        raise SourceError(f"{model} failed with {type(error).__name__}: {error}") from error
    import tensorflow as tf

    # A Keras model is a tf.Module too, under some backends.
    if isinstance(made, tf.Module) and callable(made) and not hasattr(made, "input_shape"):
        return Network(made)
    return of_keras_model(made, model)
