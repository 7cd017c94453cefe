"""The inputs of a function: names, dtypes and shapes, and arrays that fit them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.wire import dtypes

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

    def accepts(self, array: np.ndarray) -> bool:
        """Whether dtype and shape of the array fit."""
        return array.dtype == self.dtype.numpy and bool(tf.TensorShape(self.shape).is_compatible_with(array.shape))


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
        if not declared.accepts(array):
            raise RecipeError(f"the example's {alias} is {array.dtype}{list(array.shape)}; the input is {declared}")
        arrays[alias] = array
    return arrays
