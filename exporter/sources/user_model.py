"""Sources: a user's own model, as a `.keras` or `.h5` file or as a function that returns it."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.sources.keras_application import find_application
from savedmodel_bakery.exporter.sources.network import Network, from_keras_model
from savedmodel_bakery.exporter.sources.tables import find_tables
from savedmodel_bakery.files import MAX_BYTES

FUNCTION_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def read_file(
    model: str,
    *,
    source_input: str | None = None,
    layer: str | None = None,
    custom_objects: str | None = None,
    trust_model: bool | None = None,
) -> Network:
    """Load the file without its optimizer.

    Code that it may contain runs only with `trust_model`. `custom_objects` is the name of a module whose classes and
    functions Keras finds by their names.
    """
    if not Path(model).is_file():
        raise SourceError(f"file not found: {model}")
    _check_container(Path(model))
    import keras

    known = {} if custom_objects is None else _callables(custom_objects)
    try:
        loaded = keras.saving.load_model(model, custom_objects=known, compile=False, safe_mode=not trust_model)
    except Exception as error:  # Keras raises all types of errors
        reason = _explain(str(error), Path(model), custom_objects)
        raise SourceError(f"Keras {keras.__version__} cannot load {model}: {reason}") from error
    return replace(from_keras_model(loaded, model, layer, source_input), application=find_application(loaded))


def _explain(error: str, path: Path, custom_objects: str | None) -> str:
    """Return why Keras can't load a file, and what helps."""
    saved_by = _keras_version(path)
    if saved_by.startswith("2."):
        return (
            f"{error}; it was saved by Keras {saved_by}: load it with the package tf-keras, "
            'tf_keras.models.load_model(…).export("FOLDER"), and bake FOLDER'
        )
    function = "or pass --model package.module:callable, a function that returns the model"
    unknown = re.search(r"(?:Could not locate (?:class|function)|Unknown (?:layer|object):?) '([^']+)'", error)
    if unknown is not None:
        if custom_objects is not None:
            return f"neither Keras nor {custom_objects} knows {unknown[1]!r}, which the model uses"
        return (
            f"it does not know {unknown[1]!r}, which the model uses; pass --custom-objects MODULE, the module that "
            f"defines it, {function}"
        )
    if "is a Python lambda" in error or "`Lambda` layer" in error:
        return (
            "it has a Lambda layer, whose code is in the file; pass --trust-model to run it if you trust it, "
            f"{function}"
        )
    if "Lambda" in error and "output_shape" in error:
        return (
            "it has a Lambda layer whose output_shape is not stated, or whose code uses names that are not in the "
            f"file; state it there, {function}"
        )
    return error.rpartition("Exception encountered: ")[2]


def _callables(module: str) -> dict[str, Callable[..., Any]]:
    """Return the classes and functions of a module, by name."""
    return {name: value for name, value in vars(_import(module, module)).items() if callable(value)}


def _check_container(path: Path) -> None:
    """Reject a file whose content doesn't match its suffix, which Keras would report as missing.

    In a .keras file, reject texts that are too large, such as a few kilobytes that unpack to gigabytes.
    """
    import h5py

    is_container = {".keras": zipfile.is_zipfile(path), ".h5": bool(h5py.is_hdf5(path))}
    suffix = path.suffix.lower()
    actual = next((candidate for candidate, matched in is_container.items() if matched), None)
    if actual is None:
        raise SourceError(f"{path} is not a valid {suffix} file")
    if actual != suffix:
        raise SourceError(f"{path} is a {actual} file by its content: rename it to {path.stem}{actual}")
    if actual == ".h5":
        return
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except zipfile.BadZipFile as error:
        raise SourceError(f"{path} is not a valid .keras file: {error}") from error
    for member in members:
        if member.filename.endswith(".json") and member.file_size > MAX_BYTES:
            raise SourceError(
                f"{member.filename} in {path} has {member.file_size} bytes; at most {MAX_BYTES} are allowed"
            )


def _keras_version(path: Path) -> str:
    """Return the version of Keras that saved the file, as stated in it; empty if it isn't."""
    import h5py

    try:
        if path.suffix.lower() == ".keras":
            with zipfile.ZipFile(path) as archive:
                return str(json.loads(archive.read("metadata.json"))["keras_version"])
        with h5py.File(path) as file:
            return str(file.attrs["keras_version"])
    except (OSError, KeyError, TypeError, ValueError, RecursionError, zipfile.BadZipFile):  # damaged, or not stated
        return ""


def read_function(model: str, *, source_input: str | None = None, layer: str | None = None) -> Network:
    """Import the module, also from the working directory, and call the callable without arguments."""
    return _from_object(_call(import_callable(model), model), model, layer, source_input)


def read_object(
    model: str, network: Callable[..., Any], *, source_input: str | None = None, layer: str | None = None
) -> Network:
    """Return the network of an object: a Keras model, a tf.Module, or a function; `model` is its name.

    A function has either no parameters and returns a Keras model or a tf.Module, or one, the normalised images, and
    returns what a network does.
    """
    import keras
    import tensorflow as tf

    if isinstance(network, keras.Model | tf.Module) or not callable(network):
        return _from_object(network, model, layer, source_input)
    try:
        parameters = [*inspect.signature(network).parameters.values()]
    except (TypeError, ValueError):  # a function of an extension module
        parameters = []
    if not [each for each in parameters if each.default is each.empty and each.kind <= each.POSITIONAL_OR_KEYWORD]:
        return _from_object(_call(network, model), model, layer, source_input)
    for option, value in (("--layer", layer), ("--source-input", source_input)):
        if value is not None:
            raise SourceError(f"{option} cannot be used with {model}: it is a function, not a Keras model")
    return Network(network)


def _call(function: Callable[..., Any], name: str) -> Any:
    try:
        return function()
    except (Exception, SystemExit) as error:  # user code can raise anything
        raise SourceError(f"{name} failed with {type(error).__name__}: {error}") from error


def _from_object(network: Any, name: str, layer: str | None, source_input: str | None) -> Network:
    import tensorflow as tf

    # With some backends a Keras model is a tf.Module too.
    if isinstance(network, tf.Module) and callable(network) and not hasattr(network, "input_shape"):
        for option, value in (("--layer", layer), ("--source-input", source_input)):
            if value is not None:
                raise SourceError(f"{option} cannot be used with {name}: it is a tf.Module, not a Keras model")
        return Network(network, tables=find_tables(network))
    return replace(from_keras_model(network, name, layer, source_input), application=find_application(network))


def import_callable(name: str) -> Callable[..., Any]:
    """Import `package.module:callable`; the module may be in the working directory."""
    if not FUNCTION_NAME.fullmatch(name):
        raise SourceError(f"invalid function name {name!r}: must be package.module:callable")
    module_name, _, attributes = name.partition(":")
    target: Any = _import(module_name, name)
    try:
        for attribute in attributes.split("."):
            target = getattr(target, attribute)
    except Exception as error:  # user code can raise anything
        raise SourceError(f"cannot import {name!r}: {type(error).__name__}: {error}") from error
    if not callable(target):
        raise SourceError(f"{name!r} is a {type(target).__name__}: must be callable")
    found: Callable[..., Any] = target
    return found


def _import(module: str, described: str) -> Any:
    """Import a module, which may be in the working directory."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # user code can raise anything
        raise SourceError(f"cannot import {described!r}: {type(error).__name__}: {error}") from error
