"""Reads the tensors of a torch state_dict (`.pth`) into numpy arrays, without torch.

Reads the container that torch wrote before version 1.6, as the weights of EfficientNet-Lite were published: five
pickles, then raw storages. The checksum is verified before anything is unpickled, and the unpickler resolves only three
kinds of names, so that a file can't run code. Knows no models: names and shapes of tensors are up to the caller.
"""

from __future__ import annotations

import hashlib
import io
import math
import pickle
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# torch/hub.py, HASH_REGEX: the first digits of the file's sha256 are part of its name.
_CHECKSUM_IN_NAME = re.compile(r".*-([0-9a-f]{8})\.pth")
# torch/serialization.py: MAGIC_NUMBER and PROTOCOL_VERSION, each a pickle with DEFAULT_PROTOCOL.
_HEADER = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2)
_LENGTH_BYTES = 8  # before the content of a storage

_DTYPES = {"torch.FloatStorage": np.dtype("<f4"), "torch.LongStorage": np.dtype("<i8")}


class CheckpointError(ValueError):
    """The file can't be read as a state_dict: wrong checksum, damaged, or containing more than dense tensors."""


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype
    length: int


class _Tensor(NamedTuple):
    """A part of a storage; offset and strides count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def to_array(self, content: bytes) -> np.ndarray:
        """Return a read-only view of the storage's content; numpy checks that it stays inside."""
        size = self.storage.dtype.itemsize
        # Rejects stride 0, with which a few bytes can look like an array of any size.
        if math.prod(self.shape) * size > len(content):
            raise CheckpointError("a tensor has more elements than its storage")
        strides = [stride * size for stride in self.strides]
        view: np.ndarray = np.ndarray(self.shape, self.storage.dtype, content, self.offset * size, strides)
        return view


class _Unpickler(pickle.Unpickler):
    """Unpickles what torch writes in a state_dict, and collects the storages it refers to."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return the object for an allowed name."""
        match f"{module}.{name}":
            case "collections.OrderedDict":
                return OrderedDict
            case "torch._utils._rebuild_tensor_v2":
                # A pickle can set attributes of what it refers to: return an object that no other file gets.
                return lambda storage, offset, shape, strides, *_: _Tensor(storage, offset, shape, strides)
            case storage_type if storage_type in _DTYPES:
                return _DTYPES[storage_type]
            case other:
                raise CheckpointError(f"the file refers to {other}, which is not allowed")

    def persistent_load(self, pid: Any) -> _Storage:
        """Return the storage for a persistent id: ("storage", type, key, location, length, None)."""
        match pid:
            case ("storage", np.dtype() as dtype, str(key), _, int(length), None) if length >= 0:
                return self.storages.setdefault(key, _Storage(key, dtype, length))
            case _:
                raise CheckpointError("the file has an invalid storage")


def _read_tensors(file: bytes) -> dict[str, np.ndarray]:
    """torch/serialization.py, `_legacy_save`: magic, protocol, system, state_dict, storage keys, storages."""
    if not file.startswith(_HEADER):
        raise CheckpointError("not a torch checkpoint of the format before torch 1.6")
    stream = io.BytesIO(file)
    stream.seek(len(_HEADER))
    _Unpickler(stream).load()  # the system: byte order and sizes of types
    unpickler = _Unpickler(stream)
    state_dict = unpickler.load()
    contents: dict[str, bytes] = {}
    for key in _Unpickler(stream).load():
        storage = unpickler.storages[key]
        stream.seek(_LENGTH_BYTES, io.SEEK_CUR)
        contents[key] = stream.read(storage.length * storage.dtype.itemsize)
    return {str(name): tensor.to_array(contents[tensor.storage.key]) for name, tensor in state_dict.items()}


def read_checkpoint(path: Path) -> dict[str, np.ndarray]:
    """Read the tensors of a state_dict of 32-bit floats and 64-bit integers, by name, in the file's order.

    They have torch's shapes (convolutions O,I,H,W), and are read-only views with the file's strides; tensors that share
    a storage share memory.
    """
    file = path.read_bytes()
    checksum = _CHECKSUM_IN_NAME.fullmatch(path.name)
    if checksum is None:
        raise CheckpointError("the file name must end with 8 digits of the file's sha256, as weights-0123abcd.pth")
    digest = hashlib.sha256(file).hexdigest()
    if not digest.startswith(checksum[1]):
        raise CheckpointError(f"the file is damaged: its sha256 starts with {digest[:8]}, not {checksum[1]}")
    try:
        return _read_tensors(file)
    except CheckpointError:
        raise
    except Exception as error:  # "Other exceptions may also be raised during unpickling" (documentation of pickle)
        raise CheckpointError(f"the file is damaged: {error}") from error
