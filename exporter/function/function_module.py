"""A user's function as a SavedModel: tensors by alias in, tensors by alias out; and arrays that fit its inputs."""

from __future__ import annotations

import inspect
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import RecipeError, SourceError
from savedmodel_bakery.exporter.graph_functions import graph_function
from savedmodel_bakery.exporter.tensor_types import Tensor
from savedmodel_bakery.wire import dtypes, schema, trees

SIGNATURE = "serving_default"
INEXACT = ("half", "bfloat16", "float", "double", "complex64", "complex128")
_ALLOWED = {number: dtype for number, dtype in dtypes.BY_NUMBER.items() if not dtype.name.startswith(("qint", "quint"))}
_GENERATED_SIZES = (2, 3)
_FORM = re.compile(r"(?P<alias>[^:\s]+):(?P<dtype>\w+)\[(?P<sizes>\.\.\.|(?:(?:\?|\d+)(?:,(?:\?|\d+))*)?)\]")


@dataclass(frozen=True)
class Input:
    """One input of the signature."""

    alias: str  # its name in requests; `a/0/b` is the argument `a[0]["b"]` (see `wire.trees`)
    dtype: dtypes.DType
    shape: tuple[int | None, ...] | None  # None for any size of an axis, or if the number of axes is free too

    def __str__(self) -> str:
        sizes = "..." if self.shape is None else ",".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.alias}:{tf.as_dtype(self.dtype.number).name}[{sizes}]"


def parse_input(text: str) -> Input:
    """Parse `name:type[sizes]`, such as `x:float64[?,3]`; `?` is any size, `[]` a scalar, `[...]` any shape."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise RecipeError(
            f"invalid input {text!r}: must be NAME:TYPE[SIZES], such as x:float64[?,3], x:string[] or x:int32[...]"
        )
    try:
        number = tf.as_dtype(match["dtype"]).as_datatype_enum
    except TypeError:
        number = 0
    if number not in _ALLOWED:
        names = ", ".join(sorted(tf.as_dtype(allowed).name for allowed in _ALLOWED))
        raise RecipeError(f"invalid input {text!r}: its type {match['dtype']} must be one of {names}")
    if match["sizes"] == "...":
        return Input(match["alias"], _ALLOWED[number], None)
    sizes = match["sizes"].split(",") if match["sizes"] else []
    return Input(match["alias"], _ALLOWED[number], tuple(None if size == "?" else int(size) for size in sizes))


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


def generate_arrays(inputs: Sequence[Input]) -> Iterator[dict[str, np.ndarray]]:
    """Generate arrays by alias, twice with different free sizes, so that a size frozen in the graph is detected."""
    generator = np.random.default_rng(0)
    for free_size in _GENERATED_SIZES:
        yield {declared.alias: generate_array(declared, free_size, generator) for declared in inputs}


def generate_array(declared: Input, free_size: int, generator: np.random.Generator) -> np.ndarray:
    """Generate an array that fits an input, with `free_size` for each size that is free."""
    sizes = (None,) if declared.shape is None else declared.shape
    shape = tuple(free_size if size is None else size for size in sizes)
    if declared.dtype is dtypes.STRING:
        flat = np.empty(int(np.prod(shape)), object)
        flat[:] = [f"text {index}".encode() for index in range(flat.size)]
        return flat.reshape(shape)
    if declared.dtype.name in INEXACT:
        return np.asarray(generator.random(shape)).astype(declared.dtype.numpy)
    end = 2 if declared.dtype.name == "bool" else 5
    return np.asarray(generator.integers(0, end, shape)).astype(declared.dtype.numpy)


def read_example(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an npz file by name; pickled objects are rejected."""
    try:
        with zipfile.ZipFile(path), np.load(path) as arrays:
            return {alias: arrays[alias] for alias in arrays.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise RecipeError(f"the example {path} is not a valid npz file: {error}") from error


def check_example(example: Mapping[str, np.ndarray], inputs: Sequence[Input]) -> dict[str, np.ndarray]:
    """Return the arrays of an example, text as object arrays."""
    by_alias = {declared.alias: declared for declared in inputs}
    if example.keys() != by_alias.keys():
        raise RecipeError(
            f"the example has the arrays {', '.join(sorted(example))}; the inputs are {', '.join(sorted(by_alias))}"
        )
    arrays = {}
    for alias, declared in by_alias.items():
        array = example[alias]
        if declared.dtype is dtypes.STRING and dtypes.of_array(array) is dtypes.STRING:
            array = array.astype(object)
        has_shape = tf.TensorShape(declared.shape).is_compatible_with(array.shape)
        if array.dtype != declared.dtype.numpy or not has_shape:
            raise RecipeError(f"the example's {alias} is {array.dtype}{list(array.shape)}; the input is {declared}")
        arrays[alias] = array
    return arrays
