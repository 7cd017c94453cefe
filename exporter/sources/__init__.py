"""Model sources: what `--model` may name. A source is a module like `Source`, listed in `_SOURCES`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from savedmodel_bakery.errors import RecipeError, SourceError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.sources import (
    efficientnet_lite,
    function,
    hub,
    keras_application,
    keras_file,
    keras_hub_preset,
    saved_model,
)
from savedmodel_bakery.exporter.sources.network import Network


class Source(Protocol):
    """A module that loads the network that a name or path refers to."""

    FORM: str
    """How such a model is written on the command line, for error messages."""

    def matches(self, model: str) -> bool:
        """Return whether `model` has the form of this source."""
        ...

    read: Callable[..., Network]
    """Load the network `model`; keyword parameters are the recipe's fields that the source supports as options.

    A source whose networks are built differently by task has the parameter `task` too: what the user states, or None.
    """


_SOURCES: tuple[Source, ...] = (
    efficientnet_lite,
    keras_application,
    keras_hub_preset,
    hub,
    keras_file,
    saved_model,
    function,
)
# Fields of a recipe that are for some sources only.
_OPTIONS = ("weights", "source_signature", "source_input", "source_output", "layer")


def read_network(values: Mapping[str, Any]) -> Network:
    """Load the network of a recipe, given the values of its fields by name."""
    model = values["model"]
    source = find_source(model)
    options = {name: values[name] for name in _OPTIONS if values.get(name) is not None}
    supported = inspect.signature(source.read).parameters
    unsupported = [Recipe.FIELDS[name].option for name in options if name not in supported]
    if unsupported:
        raise SourceError(f"{', '.join(unsupported)} cannot be used with model {model}")
    if "task" in supported:
        options["task"] = values.get("task")
    return source.read(model, **options)


def find_source(model: str) -> Source:
    """Return the source whose form `model` has."""
    for source in _SOURCES:
        if source.matches(model):
            return source
    raise SourceError(f"unknown model {model!r}: allowed are {'; '.join(source.FORM for source in _SOURCES)}")


def read_preprocessing(model: str) -> Mapping[str, Any]:
    """Return the preprocessing that a known network was trained with, without loading it."""
    for source in (efficientnet_lite, keras_application):
        if source.matches(model):
            preprocessing: Mapping[str, Any] = source.preprocessing(model)
            return preprocessing
    names = ", ".join(sorted(keras_application.applications()))
    raise RecipeError(
        f"invalid like {model!r}: must be {efficientnet_lite.FORM}, or keras:NAME with one of the names {names}"
    )


__all__ = ["Network", "Source", "find_source", "read_network", "read_preprocessing"]
