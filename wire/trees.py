"""Converts nested dicts and lists of arrays to flat names and back: `{"a": [{"b": array}]}` is the input `a/0/b`.

Names follow JSON Pointer (RFC 6901), without the leading slash: the keys on the path to an array, joined by `/`. In a
key, `~` is written as `~0` and `/` as `~1`; list indices start at 0. On the way back, keys that are exactly 0, 1, 2 …
become a list, others a dict. If the signature has an input of a name, the whole value of that name is one array. An
empty dict has no name and is not sent; an empty list is an empty array.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

_Types = type | tuple[type, ...]


def flatten(
    tree: Mapping[str, Any], aliases: Collection[str] = (), *, array_type: _Types = np.ndarray
) -> dict[str, Any]:
    """Return the arrays of a tree by name.

    The tree is a dict of arrays, of values that numpy converts to an array (numbers, bytes and str, alone or in lists),
    or of dicts, lists and tuples of these. A list is a branch if it contains an array or a dict at any depth; otherwise
    it is one array. `aliases` are the inputs of the signature. Raises ValueError if two arrays have the same name, and
    TypeError for a key that is not a str.
    """
    if not isinstance(tree, Mapping):
        raise TypeError(f"inputs is {type(tree).__name__}; must be a dict of arrays by name")
    arrays: dict[str, Any] = {}
    for key, value in tree.items():
        leaves = [(key, value)] if key in aliases else _leaves(_escape(key), value, aliases, array_type)
        for name, leaf in leaves:
            if name in arrays:
                raise ValueError(f'two arrays have the name "{name}"; keys joined by "/" must differ')
            arrays[name] = leaf
    return arrays


def restore(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree of arrays that `flatten` has named, or the arrays unchanged if their names do not form a tree."""
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *parents, last = map(_unescape, name.split("/"))
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
        for key, child in value.items():
            yield from _leaves(f"{name}/{_escape(key)}", child, aliases, array_type)
    else:
        for index, child in enumerate(value):
            yield from _leaves(f"{name}/{index}", child, aliases, array_type)


def _is_branch(value: Any, array_type: _Types) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, (list, tuple))
        and any(isinstance(item, array_type) or _is_branch(item, array_type) for item in value)
    )


def _escape(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"key {key!r} of an input is {type(key).__name__}; must be str")
    return key.replace("~", "~0").replace("/", "~1")


def _unescape(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~")


def _as_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    children = {key: _as_lists(item) for key, item in value.items()}
    indices = [str(index) for index in range(len(children))]
    return [children[index] for index in indices] if children.keys() == set(indices) else children
