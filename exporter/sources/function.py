"""Source: `package.module:callable`, a function of the user's own that returns a Keras model or a tf.Module."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from savedmodel_bakery.exporter.errors import SourceError
from savedmodel_bakery.exporter.sources.network import Network, SourceOptions, of_keras_model

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
    found = import_callable(model)
    try:
        made = found()
    except Exception as error:  # it is the user's code
        raise SourceError(f"{model} failed with {type(error).__name__}: {error}") from error
    import tensorflow as tf

    # A Keras model is a tf.Module too, under some backends.
    if isinstance(made, tf.Module) and callable(made) and not hasattr(made, "input_shape"):
        return Network(made)
    return of_keras_model(made, model)


def import_callable(name: str) -> Callable[..., Any]:
    """What `package.module:callable` names; the module may lie in the working directory.

    Raises:
        SourceError: it is no such name, can't be imported, or is no callable.
    """
    if not matches(name):
        raise SourceError(f"{name!r} names no function; allowed is package.module:callable")
    module_name, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # it is the user's code
        raise SourceError(f"model {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise SourceError(f"model {name!r} is a {type(found).__name__}; allowed is a callable")
    return found
