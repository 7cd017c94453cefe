"""The manifest of a version: the size and digest of each of its files, by which a copy can be checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.wire import version_folder

GRAPH, MANIFEST = version_folder.GRAPH.as_posix(), version_folder.MANIFEST.as_posix()
"""Paths in a store."""

_BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class FileDigest:
    """The size of a file, and its SHA-256 in hexadecimal."""

    size_bytes: int
    sha256: str


Manifest = Mapping[str, FileDigest]
"""The files of a version by their path in it, with `/` between its parts. The manifest itself is not among them."""


def describe(folder: Path) -> Manifest:
    """Read all files of a version's folder and return its manifest. Raises OSError."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: FileDigest(path.stat().st_size, _sha256(path)) for name, path in files.items() if name != MANIFEST}


def find_difference(expected: Manifest, actual: Manifest) -> str:
    """Return how the files of a folder differ from a manifest, in a few words; empty if they agree."""
    for name in sorted(expected.keys() | actual.keys()):
        if name not in actual:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} is not in the manifest"
        if expected[name] != actual[name]:
            return f"{name} differs from the manifest"
    return ""


def encode(manifest: Manifest) -> bytes:
    """Return a manifest as JSON; equal manifests have equal texts."""
    files = {name: asdict(manifest[name]) for name in sorted(manifest)}
    return json.dumps({"files": files}, indent=2).encode() + b"\n"


def decode(content: bytes, source: str) -> Manifest:
    """Parse a manifest; raise PublishError, which names `source`, if it is damaged or names files outside a version."""
    try:
        files = json.loads(content)["files"]
        manifest = {name: FileDigest(int(file["size_bytes"]), str(file["sha256"])) for name, file in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise PublishError(f"{source} is not a manifest of a version") from error
    for name in manifest:
        if not is_inside(name) or name == MANIFEST:
            raise PublishError(f"{source} names {name!r}, which is not the path of a file in a version")
    if GRAPH not in manifest:
        raise PublishError(f"{source} lacks {GRAPH}")
    return manifest


def is_inside(name: str) -> bool:
    """Return whether a path in a store, which anybody may have written, is that of a file in the folder of a copy."""
    parts = PurePosixPath(name).parts
    is_below = bool(parts) and ".." not in parts and "/" not in parts and "/".join(parts) == name
    is_valid = "\\" not in name and "\0" not in name and name.encode(errors="ignore").decode() == name
    return is_below and is_valid


def _sha256(path: Path) -> str:
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            hasher.update(block)
    return hasher.hexdigest()
