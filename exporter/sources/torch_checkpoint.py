"""Reads the tensors of a torch state_dict (`.pth`) into numpy arrays, without torch.

Reads both containers: the legacy one (five pickles, then raw storages) and the zip one (`<root>/data.pkl` and
`<root>/data/<key>`). The checksum is verified before anything is unpickled, and the unpickler resolves only the names
in `_GLOBALS`, so that a file can't run code. Knows no models: names and shapes of tensors are up to the caller.
"""

from __future__ import annotations

import hashlib
import io
import math
import pickle
import re
import reprlib
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# torch/hub.py, HASH_REGEX: the first digits of the file's sha256 are part of its name.
_CHECKSUM_IN_NAME = re.compile(r".*-([0-9a-f]{8})\.pth")
# torch/serialization.py: MAGIC_NUMBER, pickled with DEFAULT_PROTOCOL, and PROTOCOL_VERSION of the legacy container.
_LEGACY_MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2)
_LEGACY_PROTOCOL = 1001
_ZIP_MAGIC = b"PK\x03\x04"


class CheckpointError(ValueError):
    """The file can't be read as a state_dict: wrong checksum, damaged, or containing more than dense tensors."""


class _StorageType(NamedTuple):
    dtype: np.dtype


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype
    length: int

    @property
    def size_bytes(self) -> int:
        return self.length * self.dtype.itemsize


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def to_array(self, content: bytes) -> np.ndarray:
        """Return a read-only view of the storage's content; offset and strides count elements."""
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


class _StateDict(dict[Any, Any]):
    """Stands for OrderedDict; ignores the attribute `_metadata` that torch sets on a state_dict."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        pass


def _rebuild_tensor(storage: object, offset: object, shape: object, strides: object, *_: object) -> _Tensor:
    if not (isinstance(storage, _Storage) and isinstance(shape, tuple) and isinstance(strides, tuple)):
        raise CheckpointError("a tensor has arguments of the wrong type")
    numbers: tuple[Any, ...] = (offset, *shape, *strides)
    if len(shape) != len(strides) or any(type(number) is not int or number < 0 for number in numbers):
        raise CheckpointError(
            f"a tensor has shape {shape}, strides {strides} and offset {offset}: "
            "must be integers from 0, with one stride per axis"
        )
    return _Tensor(storage, numbers[0], shape, strides)


def _rebuild_parameter(tensor: object, *_: object) -> _Tensor:
    if not isinstance(tensor, _Tensor):
        raise CheckpointError("a parameter contains no tensor")
    return tensor


_GLOBALS: dict[str, Callable[..., Any] | _StorageType] = {
    "collections.OrderedDict": _StateDict,
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
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


class _Unpickler(pickle.Unpickler):
    """Unpickles what torch writes in a state_dict, and collects the storages it refers to."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return the object for an allowed name."""
        allowed = _GLOBALS.get(f"{module}.{name}")
        if allowed is None:
            raise CheckpointError(f"the file refers to {module}.{name}; allowed are {', '.join(_GLOBALS)}")
        if isinstance(allowed, _StorageType):
            return allowed
        # A pickle can set attributes of what it refers to: return an object that no other file gets.
        return lambda *arguments: allowed(*arguments)

    def persistent_load(self, pid: Any) -> _Storage:
        """Return the storage for a persistent id: ("storage", type, key, location, length, None)."""
        match pid:
            case ("storage", _StorageType(dtype), str(key), _, int(length), *view_of) if length >= 0:
                if view_of not in ([], [None]):
                    raise CheckpointError(f"storage {key} is a view of another, which is not supported")
                storage = self.storages.setdefault(key, _Storage(key, dtype, length))
            case _:
                raise CheckpointError(f"invalid storage {reprlib.repr(pid)}")
        if storage != (key, dtype, length):
            raise CheckpointError(f"storage {key} has two different descriptions")
        return storage


def _unpickle(stream: io.BytesIO) -> tuple[Any, dict[str, _Storage]]:
    """Unpickle the object at the stream's position, and return it with the storages it refers to."""
    unpickler = _Unpickler(stream)
    try:
        return unpickler.load(), unpickler.storages
    except CheckpointError:
        raise
    except Exception as error:  # "Other exceptions may also be raised during unpickling" (documentation of pickle)
        raise CheckpointError(f"damaged pickle: {error}") from error


def _read_legacy(file: bytes) -> tuple[Any, dict[str, bytes]]:
    """torch/serialization.py, `_legacy_save`: magic, protocol, system, object, storage keys, storages."""
    stream = io.BytesIO(file)
    if stream.read(len(_LEGACY_MAGIC)) != _LEGACY_MAGIC:
        raise CheckpointError("not a torch checkpoint: it starts with another magic number")
    if (protocol := _unpickle(stream)[0]) != _LEGACY_PROTOCOL:
        raise CheckpointError(f"protocol version {protocol!r}: must be {_LEGACY_PROTOCOL}")
    system, _ = _unpickle(stream)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise CheckpointError("the file was not written on a little-endian machine")
    top, storages = _unpickle(stream)
    keys, _ = _unpickle(stream)
    if keys != sorted(storages):
        raise CheckpointError("the file's list of storages differs from those its tensors refer to")
    contents: dict[str, bytes] = {}
    for key in keys:
        header = stream.read(8)
        contents[key] = stream.read(storages[key].size_bytes)
        if header != struct.pack("<q", storages[key].length) or len(contents[key]) != storages[key].size_bytes:
            raise CheckpointError(f"storage {key} is truncated, or its length is not {storages[key].length}")
    if stream.read(1):
        raise CheckpointError("unexpected bytes after the last storage")
    return top, contents


def _read_zip(file: bytes) -> tuple[Any, dict[str, bytes]]:
    """caffe2/serialize/inline_container.h: one entry for the pickle, one per storage."""
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        names = archive.namelist()
        pickles = [name for name in names if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise CheckpointError(f"the zip has {len(pickles)} entries data.pkl: must have one")
        root = pickles[0].removesuffix("data.pkl")
        if f"{root}byteorder" in names and archive.read(f"{root}byteorder") != b"little":
            raise CheckpointError("the file was not written on a little-endian machine")
        top, storages = _unpickle(io.BytesIO(archive.read(pickles[0])))
        contents = {key: archive.read(f"{root}data/{key}") for key in storages}
    for key, storage in storages.items():
        if len(contents[key]) != storage.size_bytes:
            raise CheckpointError(f"storage {key} has {len(contents[key])} bytes: must have {storage.size_bytes}")
    return top, contents


def read_checkpoint(path: Path) -> dict[str, np.ndarray]:
    """Read the tensors of a state_dict, or of the state_dict under the key `state_dict` of a training checkpoint.

    Returns:
        Array by name, in the file's order, with torch's shapes (convolutions O,I,H,W). Arrays are read-only views with
        the file's strides; tensors that share a storage share memory.

    Raises:
        CheckpointError: the sha256 doesn't start with the 8 hex digits at the end of the file's name, or the file is
            damaged or contains more than dense tensors.
        OSError: the file can't be read.
    """
    file = path.read_bytes()
    checksum = _CHECKSUM_IN_NAME.fullmatch(path.name)
    if checksum is None:
        raise CheckpointError("the file name must end with 8 digits of the file's sha256, as weights-0123abcd.pth")
    digest = hashlib.sha256(file).hexdigest()
    if not digest.startswith(checksum[1]):
        raise CheckpointError(f"the file is damaged: its sha256 starts with {digest[:8]}, not {checksum[1]}")
    try:
        top, contents = _read_zip(file) if file.startswith(_ZIP_MAGIC) else _read_legacy(file)
    except CheckpointError:
        raise
    except Exception as error:  # zipfile documents only BadZipFile, but damaged archives raise many others
        raise CheckpointError(f"the file is damaged: {error}") from error
    state_dict = top.get("state_dict", top) if isinstance(top, dict) else top
    if not isinstance(state_dict, dict):
        raise CheckpointError(f"the file contains a {type(state_dict).__name__}: must be a dict of tensors")
    for name, tensor in state_dict.items():
        if not isinstance(name, str) or not isinstance(tensor, _Tensor):
            raise CheckpointError(f"entry {reprlib.repr(name)} is a {type(tensor).__name__}: must be a tensor")
    return {name: tensor.to_array(contents[tensor.storage.key]) for name, tensor in state_dict.items()}
