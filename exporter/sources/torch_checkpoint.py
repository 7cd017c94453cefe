"""Reads the tensors of a torch state_dict (`.pth`) into numpy arrays, without torch.

Reads both containers: the legacy one (five pickles, then raw storages) and the zip one (`<root>/data.pkl` and
`<root>/data/<key>`). The checksum is verified before anything else is read. Knows no models: names and shapes of
tensors are up to the caller.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from savedmodel_bakery.exporter.sources.torch_pickle import CheckpointError, Tensor, read_pickle

__all__ = ["CheckpointError", "read_checkpoint"]

# torch/hub.py, HASH_REGEX: the first digits of the file's sha256 are part of its name.
_CHECKSUM_IN_NAME = re.compile(r".*-([0-9a-f]{8})\.pth")
# torch/serialization.py: MAGIC_NUMBER, pickled with DEFAULT_PROTOCOL, and PROTOCOL_VERSION of the legacy container.
_LEGACY_MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2)
_LEGACY_PROTOCOL = 1001
_ZIP_MAGIC = b"PK\x03\x04"


def _read_legacy(file: bytes) -> tuple[Any, dict[str, bytes]]:
    """torch/serialization.py, `_legacy_save`: magic, protocol, system, object, storage keys, storages."""
    stream = io.BytesIO(file)
    if stream.read(len(_LEGACY_MAGIC)) != _LEGACY_MAGIC:
        raise CheckpointError("not a torch checkpoint: it starts with another magic number")
    protocol, _ = read_pickle(stream)
    if not isinstance(protocol, int) or protocol != _LEGACY_PROTOCOL:
        number = protocol if isinstance(protocol, int) else f"of type {type(protocol).__name__}"
        raise CheckpointError(f"protocol version {number}: must be {_LEGACY_PROTOCOL}")
    system, _ = read_pickle(stream)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise CheckpointError("the file was not written on a little-endian machine")
    top, storages = read_pickle(stream)
    keys, _ = read_pickle(stream)
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
        top, storages = read_pickle(io.BytesIO(archive.read(pickles[0])))
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
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise CheckpointError(f"entry {name!r} is a {type(tensor).__name__}: must be a tensor")
    return {name: tensor.to_array(contents[tensor.storage.key]) for name, tensor in state_dict.items()}
