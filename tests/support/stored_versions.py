"""Small folders of versions, and stores in memory in which a test intervenes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from savedmodel_bakery.storage.store import Store, open_store

_roots = itertools.count()


def write_version(folder: Path, text: str = "first") -> Path:
    """Write the files of a version that differ by `text`, except the first, and return its folder."""
    files = {
        "saved_model.pb": f"graph of {text}",
        "variables/variables.index": "index",
        "variables/variables.data-00000-of-00001": f"weights of {text}",
        "assets.extra/empty": "",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of each file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stored(store: Store) -> dict[str, bytes]:
    """Return the content of each file below a URL."""
    return {name: store.read(name) for name in store.sizes()}


def memory_store(before: Callable[[int], None] = lambda _: None, url: str | None = None) -> Store:
    """Return a store in memory, which is empty unless another has the same URL.

    `before` is called before each step that reads or changes a file, with its number, from 1. The storage does each
    step as a whole or not at all, so a program that is killed leaves the state before or after one.
    """
    store = open_store(url or f"memory://{next(_roots)}/models")
    return Store(store.url, _Intercepted(store._filesystem, before))


class _Intercepted:
    def __init__(self, filesystem: Any, before: Callable[[int], None]) -> None:
        self._filesystem, self._before, self._steps = filesystem, before, itertools.count(1)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._filesystem, name)
        if name.startswith("_"):
            return method

        def step(*args: Any, **options: Any) -> Any:
            self._before(next(self._steps))
            return method(*args, **options)

        return step
