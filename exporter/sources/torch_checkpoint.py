"""Read a torch state_dict (`.pth`) into numpy arrays, without torch and without trusting the file.

Both containers are read: the legacy one (five pickles, then raw storages) and the zip one (`<root>/data.pkl`
and `<root>/data/<key>`). Python's unpickler is not used at all. A pickle is a program for a stack machine;
the one here has only the instructions that torch's writer emits and only the functions below, so there is
nothing by which a file could run code. Each instruction takes memory in proportion to its own bytes, a
storage is taken only when all its bytes are there, and tensors are views.

It must not know any model: names and shapes are the caller's business.
"""

from __future__ import annotations

import io
import pickletools
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import numpy as np

# torch/serialization.py: MAGIC_NUMBER and PROTOCOL_VERSION of the legacy container.
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001
_ZIP_MAGIC = b"PK\x03\x04"
_MAX_AXES = 64  # numpy's limit, and torch's


class CheckpointError(ValueError):
    """The file is no state_dict that can be read: damaged, hostile, or holding more than tensors."""


@dataclass
class _Storage:
    key: str
    dtype: np.dtype
    length: int
    content: bytes = b""

    @property
    def size_bytes(self) -> int:
        return self.length * self.dtype.itemsize


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def view(self) -> np.ndarray:
        """A read-only array on the storage's bytes; offset and strides count elements, as torch's do."""
        dtype = self.storage.dtype
        elements = 1
        for extent in self.shape:
            elements *= extent
        # Stride 0 would let a few bytes claim to be an array of any size; no state_dict needs it.
        if elements > self.storage.length:
            raise CheckpointError(
                f"a tensor of shape {self.shape} is larger than its storage of {self.storage.length} elements"
            )
        strides = tuple(stride * dtype.itemsize for stride in self.strides)
        try:
            # With a buffer given, numpy itself refuses whatever would reach outside it.
            array: np.ndarray = np.ndarray(
                self.shape, dtype, self.storage.content, offset=self.offset * dtype.itemsize, strides=strides
            )
        except (ValueError, OverflowError) as error:
            raise CheckpointError(
                f"a tensor of shape {self.shape}, strides {self.strides} and offset {self.offset} reaches "
                f"past its storage of {self.storage.length} elements"
            ) from error
        return array


def _ordered_dict() -> dict[str, Any]:
    return {}


def _rebuild_tensor(storage: object, offset: object, shape: object, strides: object, *_: object) -> _Tensor:
    if not (isinstance(storage, _Storage) and isinstance(shape, tuple) and isinstance(strides, tuple)):
        raise CheckpointError("a tensor's record has the wrong types")
    if len(shape) != len(strides) or len(shape) > _MAX_AXES:
        raise CheckpointError(f"a tensor must have as many strides as axes, and at most {_MAX_AXES}")
    if any(type(number) is not int or number < 0 for number in (offset, *shape, *strides)):
        raise CheckpointError("a tensor's offset, shape and strides must be whole numbers from 0")
    return _Tensor(storage, cast(int, offset), shape, strides)


def _rebuild_parameter(tensor: object, *_: object) -> _Tensor:
    if not isinstance(tensor, _Tensor):
        raise CheckpointError("a parameter's record holds no tensor")
    return tensor


_GLOBALS: dict[str, Callable[..., Any] | np.dtype] = {
    "collections OrderedDict": _ordered_dict,
    "torch._utils _rebuild_tensor": _rebuild_tensor,
    "torch._utils _rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils _rebuild_parameter": _rebuild_parameter,
    "torch FloatStorage": np.dtype("<f4"),
    "torch DoubleStorage": np.dtype("<f8"),
    "torch HalfStorage": np.dtype("<f2"),
    "torch LongStorage": np.dtype("<i8"),
    "torch IntStorage": np.dtype("<i4"),
    "torch ShortStorage": np.dtype("<i2"),
    "torch CharStorage": np.dtype("i1"),
    "torch ByteStorage": np.dtype("u1"),
    "torch BoolStorage": np.dtype("?"),
}

_LITERALS = frozenset({"BINFLOAT", "BININT", "BININT1", "BININT2", "BINUNICODE", "LONG1", "SHORT_BINSTRING"})
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLE_LENGTHS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Machine:
    """The stack machine of one pickle (instructions: the standard library's pickletools)."""

    def __init__(self, storages: dict[str, _Storage]) -> None:
        self.storages = storages
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, stream: io.BytesIO) -> Any:
        """Run the pickle at the stream's position, and leave the position behind its end.

        Raises:
            CheckpointError: for an instruction or a global outside the tables, and for a damaged pickle.
        """
        try:
            for instruction, argument, _ in pickletools.genops(stream):
                self._step(instruction.name, argument)
            (result,) = self.stack
        except CheckpointError:
            raise
        except (ValueError, IndexError, KeyError, TypeError, AttributeError, struct.error) as error:
            raise CheckpointError(f"the pickle is damaged: {error}") from error
        return result

    def _step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "EMPTY_LIST":
            stack.append([])
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name == "TUPLE":
            stack.append(tuple(self._pop_to_mark()))
        elif name in _TUPLE_LENGTHS:
            stack.append(tuple(self._pop(_TUPLE_LENGTHS[name])))
        elif name in ("APPEND", "APPENDS"):
            self._append(self._pop(1) if name == "APPEND" else self._pop_to_mark())
        elif name in ("SETITEM", "SETITEMS"):
            self._set_items(self._pop(2) if name == "SETITEM" else self._pop_to_mark())
        elif name == "BINPERSID":
            stack.append(self._storage(stack.pop()))
        elif name == "GLOBAL":
            stack.append(self._global(argument))
        elif name == "REDUCE":
            self._call(*self._pop(2))
        elif name == "BUILD":
            # Only the state_dict's own `_metadata` comes this way, and it holds no tensors.
            stack.pop()
        elif name not in ("PROTO", "STOP"):
            raise CheckpointError(f"the pickle has the instruction {name}, which torch does not write in a state_dict")

    def _pop(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise CheckpointError("the pickle is damaged: its stack is empty")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def _pop_to_mark(self) -> list[Any]:
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def _append(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise CheckpointError("the pickle is damaged: it appends to what is no list")
        self.stack[-1].extend(items)

    def _set_items(self, items: list[Any]) -> None:
        keys, values = items[::2], items[1::2]
        # Hashing nested tuples can take time exponential in their bytes; a state_dict has names only.
        if any(type(key) is not str for key in keys):
            raise CheckpointError("a dict in the file has keys that are not text")
        if type(self.stack[-1]) is not dict:
            raise CheckpointError("the pickle is damaged: it sets items of what is no dict")
        self.stack[-1].update(zip(keys, values, strict=True))

    def _global(self, name: str) -> Callable[..., Any] | np.dtype:
        if name not in _GLOBALS:
            raise CheckpointError(
                f"the file asks for {name.replace(' ', '.')}; a state_dict may hold only dense tensors, "
                f"that is {', '.join(sorted(key.replace(' ', '.') for key in _GLOBALS))}"
            )
        return _GLOBALS[name]

    def _call(self, function: object, arguments: object) -> None:
        if not isinstance(function, FunctionType) or type(arguments) is not tuple:
            raise CheckpointError("the pickle is damaged: it calls what is no function")
        self.stack.append(function(*arguments))

    def _storage(self, record: object) -> _Storage:
        if type(record) is not tuple or len(record) not in (5, 6) or record[0] != "storage":
            raise CheckpointError("a storage's record is not one that torch writes")
        _, dtype, key, _location, length, *view = record
        if not isinstance(dtype, np.dtype) or type(key) is not str or type(length) is not int or length < 0:
            raise CheckpointError("a storage's record has the wrong types")
        if view not in ([], [None]):
            raise CheckpointError("storages that are views of others can't be read")
        known = self.storages.setdefault(key, _Storage(key, dtype, length))
        if (known.dtype, known.length) != (dtype, length):
            raise CheckpointError(f"storage {key} is described twice, differently")
        return known


def _read_legacy(content: bytes) -> Any:
    """torch/serialization.py, `_legacy_save`: magic, protocol, system, object, storage keys, storages."""
    stream = io.BytesIO(content)
    storages: dict[str, _Storage] = {}
    try:
        magic = _Machine({}).run(stream)
    except CheckpointError as error:
        raise CheckpointError("the file is no torch checkpoint: it starts with no magic number") from error
    if magic != _LEGACY_MAGIC:
        raise CheckpointError("the file is no torch checkpoint: it starts with another magic number")
    protocol = _Machine({}).run(stream)
    if protocol != _LEGACY_PROTOCOL:
        raise CheckpointError(f"the file has another protocol version than {_LEGACY_PROTOCOL}")
    system = _Machine({}).run(stream)
    if type(system) is not dict or system.get("little_endian") is not True:
        raise CheckpointError("the file was not written by a little-endian machine")
    top = _Machine(storages).run(stream)
    keys = _Machine({}).run(stream)
    if type(keys) is not list or any(type(key) is not str for key in keys) or sorted(keys) != sorted(storages):
        raise CheckpointError("the file's list of storages differs from those that its tensors need")
    for key in keys:
        storage = storages[key]
        length = stream.read(8)
        if len(length) != 8 or struct.unpack("<q", length)[0] != storage.length:
            raise CheckpointError(f"storage {key} has another length than its record says, {storage.length}")
        storage.content = stream.read(storage.size_bytes)
        if len(storage.content) != storage.size_bytes:
            raise CheckpointError(
                f"the file is cut off: storage {key} has {len(storage.content)} of {storage.size_bytes} bytes"
            )
    if stream.read(1):
        raise CheckpointError("the file goes on after its last storage")
    return top


def _read_zip(content: bytes) -> Any:
    """caffe2/serialize/inline_container.h: one uncompressed entry for the pickle, one for each storage."""
    storages: dict[str, _Storage] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = {info.filename: info for info in archive.infolist()}
        # Compressed or overlapping entries would unfold to more than the file holds.
        if any(info.compress_type != zipfile.ZIP_STORED for info in entries.values()):
            raise CheckpointError("the zip has compressed entries, which torch does not write")
        if sum(info.file_size for info in archive.infolist()) > len(content):
            raise CheckpointError("the zip's entries claim more bytes than the file has")
        pickles = [name for name in entries if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise CheckpointError(f"a torch checkpoint has one data.pkl, the zip has {len(pickles)}")
        root = pickles[0].removesuffix("data.pkl")
        if root + "byteorder" in entries and archive.read(root + "byteorder") != b"little":
            raise CheckpointError("the file was not written by a little-endian machine")
        top = _Machine(storages).run(io.BytesIO(archive.read(pickles[0])))
        for storage in storages.values():
            entry = entries.get(f"{root}data/{storage.key}")
            if entry is None or entry.file_size != storage.size_bytes:
                there = "none" if entry is None else str(entry.file_size)
                raise CheckpointError(
                    f"storage {storage.key} should have {storage.size_bytes} bytes, the zip has {there}"
                )
            storage.content = archive.read(entry)
    return top


def read_checkpoint(path: str | Path) -> dict[str, np.ndarray]:
    """Read the tensors of a state_dict, also of one that stands under the key `state_dict` of a dict.

    Returns:
        Name to array, in the file's order, with torch's shapes (convolutions O,I,H,W). Arrays are read-only
        views with the file's strides; tensors that share a storage share memory.

    Raises:
        CheckpointError: the file is damaged, hostile, or holds more than dense tensors.
        OSError: the file can't be read.
    """
    content = Path(path).read_bytes()
    try:
        top = _read_zip(content) if content.startswith(_ZIP_MAGIC) else _read_legacy(content)
    except CheckpointError:
        raise
    # zipfile documents only the first; damaged archives raise the others too.
    except (zipfile.BadZipFile, ValueError, OverflowError, RuntimeError, EOFError, struct.error) as error:
        raise CheckpointError(f"the zip is damaged: {error}") from error
    if type(top) is dict and type(top.get("state_dict")) is dict:
        top = top["state_dict"]
    if type(top) is not dict:
        raise CheckpointError("the file holds no dict of tensors")
    for name, tensor in top.items():
        if not isinstance(tensor, _Tensor):
            raise CheckpointError(f'entry "{name}" is no tensor; a state_dict holds nothing else')
    return {name: tensor.view() for name, tensor in top.items()}
