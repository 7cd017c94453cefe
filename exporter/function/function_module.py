"""A user's function as a SavedModel: tensors by alias in, tensors by alias out."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.function.inputs import Input
from savedmodel_bakery.exporter.graph_functions import graph_function
from savedmodel_bakery.exporter.tensor_types import Tensor
from savedmodel_bakery.wire import schema, trees

SIGNATURE = "serving_default"


class Function:
    """The user's function, called with tensors by alias.

    Arguments are passed by name if the function has parameters of those names, else in the order of `inputs`. A single
    tensor that it returns is `output_0`; several are `output_0`, `output_1` …; dicts and lists of them are named as in
    `wire.trees`.
    """

    def __init__(self, function: Callable[..., Any], inputs: Sequence[Input]) -> None:
        self.callable = function
        self._traced = tf.function(function)
        self._names = list(trees.restore({declared.alias: None for declared in inputs}))
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            parameters = []  # a function written in C
        by_name = {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}
        takes_any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        self._is_called_by_name = takes_any_name or by_name >= set(self._names)

    def __call__(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the outputs by alias."""
        arguments = trees.restore(tensors)
        function = self._traced if tf.inside_function() else self.callable
        try:
            result = function(**arguments) if self._is_called_by_name else function(*map(arguments.get, self._names))
        except Exception as error:  # the user's code can raise anything
            raise SourceError(f"the function fails with {type(error).__name__}: {error}") from error
        return _by_alias(result)


def _by_alias(result: Any) -> dict[str, Tensor]:
    if isinstance(result, (list, tuple)):
        result = {f"output_{index}": element for index, element in enumerate(result)}
    elif not isinstance(result, Mapping):
        result = {"output_0": result}
    flat = trees.flatten(result, array_type=(tf.Tensor, tf.Variable))
    try:
        outputs = {alias: tf.convert_to_tensor(value) for alias, value in flat.items()}
    except (TypeError, ValueError) as error:
        raise SourceError(f"the function returns something other than tensors: {error}") from error
    if not outputs:
        raise SourceError("the function returns nothing: it must return tensors, or dicts or lists of them")
    return outputs


class FunctionModule(tf.Module):
    """The traced function with its signature."""

    def __init__(self, function: Function, inputs: Sequence[Input], name: str) -> None:
        super().__init__()
        # tf.saved_model.save follows attributes, and finds lookup tables and other resources on the callable itself.
        self._callable = function.callable
        self._inputs = _argument_names([declared.alias for declared in inputs], "input")
        self._outputs: dict[str, str] = {}

        def serve(**arguments: Tensor) -> dict[str, Tensor]:
            outputs = function({alias: arguments[argument] for alias, argument in self._inputs.items()})
            self._outputs = _argument_names(list(outputs), "output")
            return {self._outputs[alias]: tf.identity(tensor) for alias, tensor in outputs.items()}

        specs = {
            argument: tf.TensorSpec(declared.shape, tf.as_dtype(declared.dtype.number), name=argument)
            for declared, argument in zip(inputs, self._inputs.values(), strict=True)
        }
        try:
            self._serve = graph_function(serve).get_concrete_function(**specs)
        except SourceError as error:
            raise SourceError(f"{name} cannot be traced: {error}") from error
        self._variables_read = list(self._serve.graph.variables)

    def save(self, path: Path) -> None:
        """Write the SavedModel to `path`, which must not exist."""
        try:
            tf.saved_model.save(self, str(path), signatures={SIGNATURE: self._serve})
        except Exception as error:  # the user's code can use anything
            raise SourceError(f"the function cannot be saved: {error}") from error
        file = path / "saved_model.pb"
        saved = schema.SavedModel.FromString(file.read_bytes())
        for graph in saved.meta_graphs:
            definition = graph.signature_def[SIGNATURE]
            _rename(definition.inputs, self._inputs)
            _rename(definition.outputs, self._outputs)
        file.write_bytes(saved.SerializeToString())


def _argument_names(aliases: Sequence[str], prefix: str) -> dict[str, str]:
    """Return names by alias that TensorFlow does not change."""
    return {
        alias: alias if re.fullmatch(r"[A-Za-z]\w*", alias, re.ASCII) else f"{prefix}__{index}"
        for index, alias in enumerate(aliases)
    }


def _rename(tensors: Any, names: Mapping[str, str]) -> None:
    for alias, name in names.items():
        if alias != name:
            tensors[alias].CopyFrom(tensors[name])
            del tensors[name]
