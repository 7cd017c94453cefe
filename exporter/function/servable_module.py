"""A function as a SavedModel: tensors by alias in, tensors by alias out."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from savedmodel_bakery.exporter.errors import SourceError
from savedmodel_bakery.exporter.function.inputs import Input
from savedmodel_bakery.wire import schema, trees

SIGNATURE = "serving_default"


class Function:
    """The user's function, called with tensors by alias.

    Arguments go by name where it has those names, else in the order of `inputs`. A tensor that it gives is `output_0`;
    several are `output_0`, `output_1` …; dicts and lists of them are named as `wire.trees` says.
    """

    def __init__(self, function: Callable[..., Any], inputs: Sequence[Input]) -> None:
        self.callable = function
        self._traced = tf.function(function)
        self._names = list(trees.restore({given.alias: None for given in inputs}))
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            parameters = []  # it is written in C
        named = {one.name for one in parameters if one.kind is not inspect.Parameter.POSITIONAL_ONLY}
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
        self._is_named = takes_any or named >= set(self._names)

    def __call__(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by alias.

        Raises:
            SourceError: it fails, or gives something that is no tensor.
        """
        arguments = trees.restore(tensors)
        function = self._traced if tf.inside_function() else self.callable
        try:
            given = function(**arguments) if self._is_named else function(*map(arguments.get, self._names))
        except Exception as error:  # it is the user's code
            raise SourceError(f"the function fails with {type(error).__name__}: {error}") from error
        return _by_alias(given)


def _by_alias(given: Any) -> dict[str, Any]:
    tensor_types = (tf.Tensor, tf.Variable)
    if isinstance(given, (list, tuple)):
        given = {f"output_{place}": one for place, one in enumerate(given)}
    elif not isinstance(given, Mapping):
        given = {"output_0": given}
    found = trees.flatten(given, array_type=tensor_types)
    try:
        converted = {alias: tf.convert_to_tensor(one) for alias, one in found.items()}
    except (TypeError, ValueError) as error:
        raise SourceError(f"the function gives something that is no tensor: {error}") from error
    if not converted:
        raise SourceError("the function gives nothing; allowed are tensors, and dicts and lists of them")
    return converted


class ServableModule(tf.Module):
    """The traced function, with its one signature."""

    def __init__(self, function: Function, inputs: Sequence[Input], name: str) -> None:
        super().__init__()
        # tensorflow_model_server is served by what the graph reads; tables and the like hang on the callable itself.
        self._callable = function.callable
        self._inputs = _arguments_for([given.alias for given in inputs], "input")
        self._outputs: dict[str, str] = {}

        def serve(**arguments: Any) -> dict[str, Any]:
            found = function({alias: arguments[self._inputs[alias]] for alias in self._inputs})
            self._outputs = _arguments_for(list(found), "output")
            return {self._outputs[alias]: tf.identity(tensor) for alias, tensor in found.items()}

        specs = {
            self._inputs[given.alias]: tf.TensorSpec(
                given.shape, tf.as_dtype(given.dtype.number), name=self._inputs[given.alias]
            )
            for given in inputs
        }
        try:
            # AutoGraph is for the user's code; here it would put its own words around an error.
            self._serve = tf.function(serve, autograph=False).get_concrete_function(**specs)
        except SourceError as error:
            raise SourceError(f"{name} cannot be traced: {error}") from error
        self._variables_read = list(self._serve.graph.variables)

    def save(self, path: Path) -> None:
        """Write the SavedModel to `path`, which must not exist.

        Raises:
            SourceError: it uses something that can't be saved.
        """
        try:
            tf.saved_model.save(self, str(path), signatures={SIGNATURE: self._serve})
        except Exception as error:  # what the user's code uses can be anything
            raise SourceError(f"the function cannot be saved: {error}") from error
        file = path / "saved_model.pb"
        saved = schema.SavedModel.FromString(file.read_bytes())
        for graph in saved.meta_graphs:
            definition = graph.signature_def[SIGNATURE]
            _rename(definition.inputs, self._inputs)
            _rename(definition.outputs, self._outputs)
        file.write_bytes(saved.SerializeToString())


def _arguments_for(aliases: Sequence[str], kind: str) -> dict[str, str]:
    """Names that TensorFlow leaves as they are, by alias."""
    return {
        alias: alias if re.fullmatch(r"[A-Za-z]\w*", alias, re.ASCII) else f"{kind}__{place}"
        for place, alias in enumerate(aliases)
    }


def _rename(tensors: Any, names: Mapping[str, str]) -> None:
    for alias, name in names.items():
        if alias != name:
            tensors[alias].CopyFrom(tensors[name])
            del tensors[name]
