"""Model sources: what `--model` may name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from savedmodel_bakery.errors import RecipeError, SourceError, quote
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.sources import (
    efficientnet_lite,
    keras_application,
    keras_hub_preset,
    onnx_file,
    saved_model,
    training_code,
    user_model,
)
from savedmodel_bakery.exporter.sources.network import Network


class Source(NamedTuple):
    """A kind of model.

    The keyword parameters of `read` are the recipe's fields that the source supports as options. If it builds networks
    differently by task, it has the parameter `task` too: what the user states, or None.
    """

    form: str  # how such a model is written on the command line, for error messages
    matches: Callable[[str], bool]  # whether the name of a model has this form
    read: Callable[..., Network]


_BUILT_IN = ", ".join(efficientnet_lite.VARIANTS)
# The first that matches is used.
_SOURCES = (
    Source(_BUILT_IN, lambda model: model.startswith("efficientnet-lite"), efficientnet_lite.read),
    Source(
        "keras:NAME, a network of keras.applications",
        lambda model: model.startswith(keras_application.PREFIX),
        keras_application.read,
    ),
    Source(
        "keras-hub:FOLDER, a preset of KerasHub",
        lambda model: model.startswith(keras_hub_preset.PREFIX),
        keras_hub_preset.read,
    ),
    Source(
        "the URL of a TF Hub or Kaggle module, or hub:FOLDER",
        lambda model: model.startswith((saved_model.HUB_PREFIX, "https://", "http://")),
        saved_model.read_hub_module,
    ),
    Source(
        "the path of a .keras or .h5 file",
        lambda model: Path(model).suffix.lower() in (".keras", ".h5"),
        user_model.read_file,
    ),
    Source("the path of an .onnx file", onnx_file.is_onnx, onnx_file.read),
    Source("the folder of a SavedModel", lambda model: Path(model).is_dir(), saved_model.read_folder),
    Source(
        "package.module:callable returning a Keras model or a tf.Module",
        lambda model: user_model.FUNCTION_NAME.fullmatch(model) is not None,
        user_model.read_function,
    ),
)
_OTHER_FORMATS = {
    ".tflite": "a TF Lite model, which is served as it is: bakery model-server --prefer_tflite_model",
    **dict.fromkeys((".pt", ".pth"), "a PyTorch model: export it to ONNX, and pass that file"),
}
# Fields of a recipe that are for some sources only.
_OPTIONS = (
    "weights",
    "source_signature",
    "source_input",
    "source_output",
    "layer",
    "custom_objects",
    "trust_model",
    "onnx2tf",
)
_SAME_FOR_OTHERS = {"source_output": "layer", "layer": "source_output"}


OBJECT = "object:"
"""Begins the name of a model that is an object in Python."""


def read_network(values: Mapping[str, Any], network: Callable[..., Any] | None = None) -> Network:
    """Load the network of a recipe, given the values of its fields by name; or take it from an object in Python."""
    model = values["model"]
    read = find_source(model).read if network is None else partial(user_model.read_object, network=network)
    options = {name: values[name] for name in _OPTIONS if values.get(name) is not None}
    supported = inspect.signature(read).parameters
    unsupported = [Recipe.FIELDS[name].option for name in options if name not in supported]
    if unsupported:
        other = next(
            (_SAME_FOR_OTHERS[name] for name in options if name not in supported and name in _SAME_FOR_OTHERS), ""
        )
        hint = (
            f"; use {Recipe.FIELDS[other].option}, which selects an output of this model" if other in supported else ""
        )
        raise SourceError(f"{', '.join(unsupported)} cannot be used with model {model}{hint}")
    if "task" in supported:
        options["task"] = values.get("task")
    return read(model, **options)


def find_source(model: str) -> Source:
    """Return the source whose form `model` has."""
    if model.startswith(OBJECT):
        raise SourceError(f"{model} was an object in Python: pass it to bake(model=…) again")
    try:
        for source in _SOURCES:
            if source.matches(model):
                return source
    except OSError as error:  # such as a name that is too long
        raise SourceError(f"cannot read model {quote(model)}: {error.strerror}") from error
    if hint := _OTHER_FORMATS.get(Path(model).suffix.lower()):
        raise SourceError(f"{model} is {hint}")
    raise SourceError(f"unknown model {quote(model)}: allowed are {'; '.join(source.form for source in _SOURCES)}")


def read_preprocessing(like: str) -> Mapping[str, Any]:
    """Return the preprocessing that known networks, functions or files state, without a model; see the field `like`.

    Several names are separated by commas. They must agree, but for the channels of a function: the code after it, such
    as `preprocess_input`, may change their order.
    """
    stated: dict[str, tuple[str, Any]] = {}
    names = [name.strip() for name in like.split(",")]
    for name in sorted(names, key=training_code.FUNCTIONS.__contains__):  # functions last
        for field, value in _read_one(name).items():
            first, known = stated.setdefault(field, (name, value))
            if known != value and not (field == "channels" and name in training_code.FUNCTIONS):
                raise RecipeError(f"invalid like {like!r}: {first} has {field} {known}, {name} has {value}")
    return {field: value for field, (_, value) in stated.items()}


def names_files(like: str) -> bool:
    """Return whether `like` refers to files, which may change or be moved."""
    return keras_hub_preset.PREFIX in like or training_code.FILE in like


def _read_one(like: str) -> Mapping[str, Any]:
    if like.startswith("efficientnet-lite"):
        return efficientnet_lite.preprocessing(like)
    if like.startswith(keras_application.PREFIX):
        return keras_application.preprocessing(like)
    if like.startswith(keras_hub_preset.PREFIX):
        return keras_hub_preset.preprocessing(like)
    if (
        like in training_code.FUNCTIONS
        or like.startswith(training_code.TORCHVISION)
        or like.endswith(training_code.FILE)
    ):
        return training_code.read_preparation(like)
    names = ", ".join(sorted(keras_application.applications()))
    raise RecipeError(
        f"invalid like {like!r}: must be {', '.join(training_code.FUNCTIONS)}, {training_code.TORCHVISION}WEIGHTS, the "
        f".json file of a model of timm or Hugging Face, {keras_hub_preset.PREFIX}FOLDER, {_BUILT_IN}, or keras:NAME "
        f"with one of the names {names}"
    )
