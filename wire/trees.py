"""Nested dicts and lists of arrays, as names that travel: `{"a": [{"b": array}]}` is the input `a/0/b`.

The rule is JSON Pointer's (RFC 6901) without the leading slash. A name is the keys on the way to an array, joined by
`/`; within a key `~` is written `~0` and `/` is written `~1`; places in a list count from 0. On the way back, keys that
are exactly 0, 1, 2 … make a list, others a dict. A name that the signature has is that input as it stands, and what
lies under it is one array. An empty dict has no name, and doesn't travel; an empty list is an empty array.

Must not know a signature's types, or a network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

_SEPARATOR = "/"

_Types = type | tuple[type, ...]


def flatten(
    tree: Mapping[str, Any], aliases: Collection[str] = (), *, array_type: _Types = np.ndarray
) -> dict[str, Any]:
    """Name everything in `tree` that is an array, or becomes one.

    Args:
        tree: key to array, to what numpy makes an array of (numbers, bytes and str, alone or in lists), or to dicts,
            lists and tuples of these. A list is gone into where an array or a dict is in it, at any depth.
        aliases: the inputs that the signature has.
        array_type: what counts as an array.

    Raises:
        ValueError: where two things get one name.
        TypeError: where a key is no str, or `tree` no dict.
    """
    if not isinstance(tree, Mapping):
        raise TypeError(f"inputs are one {type(tree).__name__}; supported is a dict of their names to arrays")
    found: dict[str, Any] = {}
    for key, value in tree.items():
        leaves = [(key, value)] if key in aliases else _leaves(_escape(key), value, aliases, array_type)
        for name, leaf in leaves:
            if name in found:
                raise ValueError(f'two arrays are called "{name}"; keys joined by "/" must differ')
            found[name] = leaf
    return found


def restore(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `flatten`: dicts and lists where names have a `/`; names stay as they are where they fit no tree."""
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *parents, last = map(_unescape, name.split(_SEPARATOR))
        branch = tree
        for key in parents:
            branch = branch.setdefault(key, {})
            if not isinstance(branch, dict):
                return dict(arrays)
        if last in branch:
            return dict(arrays)
        branch[last] = array
    return {key: _as_lists(value) for key, value in tree.items()}


def _leaves(name: str, value: Any, aliases: Collection[str], array_type: _Types) -> Iterator[tuple[str, Any]]:
    if name in aliases or not _is_branch(value, array_type):
        yield name, value
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _leaves(name + _SEPARATOR + _escape(key), below, aliases, array_type)
    else:
        for place, below in enumerate(value):
            yield from _leaves(f"{name}{_SEPARATOR}{place}", below, aliases, array_type)


def _is_branch(value: Any, array_type: _Types) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, (list, tuple))
        and any(isinstance(item, array_type) or _is_branch(item, array_type) for item in value)
    )


def _escape(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r} of an input is {type(key).__name__}; supported is str")
    return key.replace("~", "~0").replace("/", "~1")


def _unescape(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~")


def _as_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    below = {key: _as_lists(item) for key, item in value.items()}
    places = [str(place) for place in range(len(below))]
    return [below[place] for place in places] if below.keys() == set(places) else below
