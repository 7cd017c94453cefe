"""Keeps packages from importing others that they can do without."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def hidden_modules(*names: str) -> Iterator[None]:
    """Make imports of these modules fail in the block, unless they have been imported already."""
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in names if name not in modules]
    # None makes the import of a module fail (docs.python.org/3/reference/import.html#the-module-cache).
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]
