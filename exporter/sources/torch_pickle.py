"""Reads the pickles of a torch state_dict: dictionaries, tensors and the storages they refer to.

Interprets the few opcodes that torch writes instead of unpickling, so that a file can't run code, set attributes or
hash nested tuples, which would overflow the C stack. Knows no containers and no storage contents.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class CheckpointError(ValueError):
    """The file can't be read as a state_dict: wrong checksum, damaged, or containing more than dense tensors."""


class _StorageType(NamedTuple):
    dtype: np.dtype


class Storage(NamedTuple):
    """A storage of `length` elements; its content is elsewhere in the file, under its key."""

    key: str
    dtype: np.dtype
    length: int

    @property
    def size_bytes(self) -> int:
        """The size of its content."""
        return self.length * self.dtype.itemsize


class Tensor(NamedTuple):
    """A view of a storage; offset and strides count elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def to_array(self, content: bytes) -> np.ndarray:
        """Return a read-only view of the storage's content.

        Raises:
            CheckpointError: the tensor is larger than its storage.
        """
        dtype = self.storage.dtype
        # Rejects stride 0, with which a few bytes can look like an array of any size.
        if math.prod(self.shape) > self.storage.length:
            raise CheckpointError(f"{self} has more elements than its storage")
        strides = [stride * dtype.itemsize for stride in self.strides]
        try:
            # numpy checks that the view stays inside the buffer.
            view: np.ndarray = np.ndarray(
                self.shape, dtype, content, offset=self.offset * dtype.itemsize, strides=strides
            )
        except (ValueError, OverflowError) as error:
            raise CheckpointError(f"{self} exceeds its storage") from error
        return view

    def __str__(self) -> str:
        return (
            f"a tensor of shape {self.shape}, strides {self.strides} and offset {self.offset} "
            f"in a storage of {self.storage.length} elements"
        )


def _rebuild_tensor(storage: object, offset: object, shape: object, strides: object, *_: object) -> Tensor:
    if not (isinstance(storage, Storage) and isinstance(shape, tuple) and isinstance(strides, tuple)):
        raise CheckpointError("a tensor has arguments of the wrong type")
    numbers: tuple[Any, ...] = (offset, *shape, *strides)
    if any(type(number) is not int for number in numbers):
        raise CheckpointError("a tensor has a shape, strides or an offset of the wrong type: must be integers")
    if len(shape) != len(strides) or min(numbers) < 0:
        raise CheckpointError(
            f"a tensor has shape {shape}, strides {strides} and offset {offset}: "
            "must be integers from 0, with one stride per axis"
        )
    return Tensor(storage, numbers[0], shape, strides)


def _rebuild_parameter(tensor: object, *_: object) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise CheckpointError("a parameter contains no tensor")
    return tensor


def _make_dict() -> dict[Any, Any]:
    """Stands for OrderedDict, but takes no items, whose keys would not be checked."""
    return {}


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _make_dict,
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
}
_STORAGE_TYPES = {
    "torch.FloatStorage": _StorageType(np.dtype("<f4")),
    "torch.DoubleStorage": _StorageType(np.dtype("<f8")),
    "torch.HalfStorage": _StorageType(np.dtype("<f2")),
    "torch.LongStorage": _StorageType(np.dtype("<i8")),
    "torch.IntStorage": _StorageType(np.dtype("<i4")),
    "torch.ShortStorage": _StorageType(np.dtype("<i2")),
    "torch.CharStorage": _StorageType(np.dtype("i1")),
    "torch.ByteStorage": _StorageType(np.dtype("u1")),
    "torch.BoolStorage": _StorageType(np.dtype("?")),
}
_GLOBALS: dict[str, Callable[..., Any] | _StorageType] = {**_FUNCTIONS, **_STORAGE_TYPES}


class _Interpreter:
    """Interprets the opcodes of torch/_weights_only_unpickler.py that a state_dict needs; `pickletools` has a manual.

    No value is formatted into a message before its type is known: a few bytes can describe tuples of any depth.
    """

    def __init__(self) -> None:
        self.storages: dict[str, Storage] = {}
        self._stack: list[Any] = []
        self._marks: list[int] = []  # positions in the stack
        self._memo: dict[int, Any] = {}

    def run(self, stream: io.BytesIO) -> Any:
        """Return the object at the stream's position.

        Raises:
            CheckpointError: an opcode or one of its arguments is not allowed.
            IndexError, KeyError, TypeError, ValueError: the pickle is damaged.
        """
        for opcode, argument, _ in pickletools.genops(stream):
            self._step(opcode.name, argument)
        return self._stack.pop()

    def _step(self, opcode: str, argument: Any) -> None:
        push = self._stack.append
        match opcode:
            case "PROTO" | "STOP":
                pass
            case "MARK":
                self._marks.append(len(self._stack))
            case "NONE":
                push(None)
            case "NEWTRUE" | "NEWFALSE":
                push(opcode == "NEWTRUE")
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                push(argument)
            case "EMPTY_TUPLE":
                push(())
            case "EMPTY_LIST":
                push([])
            case "EMPTY_DICT":
                push({})
            case "TUPLE":
                push(tuple(self._pop_to_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                push(tuple(self._pop(int(opcode[-1]))))
            case "APPEND" | "APPENDS":
                items = self._pop(1) if opcode == "APPEND" else self._pop_to_mark()
                self._top(list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self._pop(2) if opcode == "SETITEM" else self._pop_to_mark()
                self._set_items(items)
            case "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = self._stack[-1]
            case "BINGET" | "LONG_BINGET":
                push(self._memo[argument])
            case "GLOBAL":
                push(_find_global(argument.replace(" ", ".", 1)))
            case "REDUCE":
                push(_call(*self._pop(2)))
            case "BINPERSID":
                push(self._storage(*self._pop(1)))
            case "BUILD":
                # torch sets the attribute `_metadata` on a state_dict; it is ignored.
                self._pop(1)
                self._top(dict)
            case _:
                raise CheckpointError(f"the file has the opcode {opcode}, which torch does not write in a state_dict")

    def _pop(self, count: int) -> list[Any]:
        return [self._stack.pop() for _ in range(count)][::-1]

    def _pop_to_mark(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _top(self, expected: type) -> Any:
        if not isinstance(self._stack[-1], expected):
            raise TypeError(f"expected a {expected.__name__}, found a {type(self._stack[-1]).__name__}")
        return self._stack[-1]

    def _set_items(self, items: list[Any]) -> None:
        keys, values = items[::2], items[1::2]
        for key in keys:
            if not isinstance(key, (str, int)):
                raise TypeError(f"a key is a {type(key).__name__}: must be text or an integer")
        self._top(dict).update(zip(keys, values, strict=True))

    def _storage(self, persistent_id: object) -> Storage:
        """Return the storage for a persistent id: ("storage", type, key, location, length, None)."""
        match persistent_id:
            case ("storage", _StorageType(dtype), str(key), _, int(length), *view_of) if length >= 0:
                if view_of not in ([], [None]):
                    raise CheckpointError(f"storage {key} is a view of another, which is not supported")
                storage = self.storages.setdefault(key, Storage(key, dtype, length))
            case _:
                raise CheckpointError("invalid storage: must have a type, a key, a location and a length from 0")
        if storage != (key, dtype, length):
            raise CheckpointError(f"storage {key} has two different descriptions")
        return storage


def _find_global(name: str) -> Callable[..., Any] | _StorageType:
    if name not in _GLOBALS:
        raise CheckpointError(f"the file refers to {name}; allowed are {', '.join(_GLOBALS)}")
    return _GLOBALS[name]


def _call(function: Any, arguments: Any) -> Any:
    if not any(function is allowed for allowed in _FUNCTIONS.values()):
        raise TypeError(f"a {type(function).__name__} is called")
    return function(*arguments)


def read_pickle(stream: io.BytesIO) -> tuple[Any, dict[str, Storage]]:
    """Read the object at the stream's position, and return it with the storages it refers to, by key.

    Raises:
        CheckpointError: the pickle is damaged, or contains something that is not in a state_dict of dense tensors.
    """
    interpreter = _Interpreter()
    try:
        return interpreter.run(stream), interpreter.storages
    except CheckpointError:
        raise
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"damaged pickle: {error}") from error
