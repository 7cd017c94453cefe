"""Parses TOML with the standard library, or on Python 3.10 with the package that preceded it there."""

from __future__ import annotations

import re
import sys
from typing import Any

_MAX_PARTS = 64
# The parser takes a time and a memory that grow with the square of a key's length.
_LONG_KEY = re.compile(rf"""(?:[\w"'-]+[ \t]*\.[ \t]*){{{_MAX_PARTS}}}""")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises ValueError."""
    if _LONG_KEY.search(text):
        raise ValueError(f"it has a key of more than {_MAX_PARTS} parts")
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return content
