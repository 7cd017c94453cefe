"""What a function takes: names, element types and shapes, and arrays that fit them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.errors import RecipeError
from savedmodel_bakery.wire import dtypes

INEXACT = ("half", "bfloat16", "float", "double", "complex64", "complex128")
_ALLOWED = {number: dtype for number, dtype in dtypes.BY_NUMBER.items() if not dtype.name.startswith(("qint", "quint"))}
_MADE_UP_SIZES = (2, 3)


@dataclass(frozen=True)
class Input:
    """One input of the signature.

    Attributes:
        alias: its name, as clients say it; `a/0/b` is the argument `a[0]["b"]` (see `wire.trees`).
        dtype: its element type.
        shape: sizes of its axes, None for any; None where even their number is free.
    """

    alias: str
    dtype: dtypes.DType
    shape: tuple[int | None, ...] | None

    def __str__(self) -> str:
        sizes = "..." if self.shape is None else ",".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.alias}:{tf.as_dtype(self.dtype.number).name}[{sizes}]"


def parse_input(text: str) -> Input:
    """Read `name:type[sizes]`: `x:float64[?,3]`; `?` is any size, `[]` a scalar, `[...]` any shape.

    Raises:
        RecipeError: it is nothing of the kind.
    """
    match = re.fullmatch(r"(?P<alias>[^:\s]+):(?P<type>\w+)\[(?P<sizes>\.\.\.|(?:(?:\?|\d+)(?:,(?:\?|\d+))*)?)\]", text)
    if match is None:
        raise RecipeError(
            f"input {text!r} is none; it is NAME:TYPE[SIZES], such as x:float64[?,3], x:string[] or x:int32[...]"
        )
    try:
        number = tf.as_dtype(match["type"]).as_datatype_enum
    except TypeError:
        number = 0
    if number not in _ALLOWED:
        names = ", ".join(sorted(tf.as_dtype(known).name for known in _ALLOWED))
        raise RecipeError(f"input {text!r} is of type {match['type']}; allowed are {names}")
    if match["sizes"] == "...":
        return Input(match["alias"], _ALLOWED[number], None)
    sizes = match["sizes"].split(",") if match["sizes"] else []
    return Input(match["alias"], _ALLOWED[number], tuple(None if size == "?" else int(size) for size in sizes))


def check_names(inputs: Sequence[Input]) -> None:
    """Refuse inputs that make no signature.

    Raises:
        RecipeError: there is none, or two have one name.
    """
    aliases = [given.alias for given in inputs]
    if not aliases:
        raise RecipeError("no input was given; name each with --input NAME:TYPE[SIZES]")
    twice = sorted({alias for alias in aliases if aliases.count(alias) > 1})
    if twice:
        raise RecipeError(f"the input {twice[0]} was given twice")


def make_up(inputs: Sequence[Input]) -> Iterator[dict[str, np.ndarray]]:
    """Arrays by alias, twice: of different sizes where these are free, so that one frozen into the graph shows."""
    generator = np.random.default_rng(0)
    for free in _MADE_UP_SIZES:
        made = {}
        for given in inputs:
            shape = tuple(free if size is None else size for size in ((None,) if given.shape is None else given.shape))
            if given.dtype is dtypes.STRING:
                flat = np.empty(int(np.prod(shape)), object)
                flat[:] = [f"text {place}".encode() for place in range(flat.size)]
                made[given.alias] = flat.reshape(shape)
            elif given.dtype.name == "bool":
                made[given.alias] = generator.integers(0, 2, shape).astype(bool)
            elif given.dtype.name in INEXACT:
                made[given.alias] = generator.random(shape).astype(given.dtype.numpy)
            else:
                made[given.alias] = np.asarray(generator.integers(0, 5, shape)).astype(given.dtype.numpy)
        yield made


def read_example(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file, by name.

    Raises:
        RecipeError: it is none, or holds pickled objects.
    """
    try:
        with zipfile.ZipFile(path), np.load(path) as arrays:
            return {alias: arrays[alias] for alias in arrays.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise RecipeError(f"the example {path} is no npz file of arrays: {error}") from error


def check_example(example: Mapping[str, np.ndarray], inputs: Sequence[Input]) -> dict[str, np.ndarray]:
    """The arrays, where they fit.

    Raises:
        RecipeError: they are not those of `inputs`, or are of another type or shape.
    """
    wanted = {given.alias: given for given in inputs}
    if example.keys() != wanted.keys():
        raise RecipeError(f"the example has {', '.join(sorted(example))}; the inputs are {', '.join(sorted(wanted))}")
    found = {}
    for alias, given in wanted.items():
        array = example[alias]
        if given.dtype is dtypes.STRING and dtypes.of_array(array) is dtypes.STRING:
            array = array.astype(object)
        fits = array.dtype == given.dtype.numpy and (
            given.shape is None
            or (
                array.ndim == len(given.shape)
                and all(size in (None, found) for size, found in zip(given.shape, array.shape, strict=True))
            )
        )
        if not fits:
            raise RecipeError(f"the example's {alias} is {array.dtype}{list(array.shape)}; the input is {given}")
        found[alias] = array
    return found
