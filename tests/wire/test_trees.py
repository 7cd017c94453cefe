"""One table of (tree, arrays by name) drives both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from savedmodel_bakery.wire.trees import flatten, restore

A, B = np.array(1), np.array(2)

TABLE = [
    pytest.param({"x": A, "y": B}, {"x": A, "y": B}, id="flat"),
    pytest.param({"a": {"b": A}, "c": B}, {"a/b": A, "c": B}, id="dict"),
    pytest.param({"a": [A, B]}, {"a/0": A, "a/1": B}, id="list"),
    pytest.param({"a": [{"b": A}, {"b": B}]}, {"a/0/b": A, "a/1/b": B}, id="dicts in a list"),
    pytest.param({"a": [[A], [B]]}, {"a/0/0": A, "a/1/0": B}, id="lists in a list"),
    pytest.param({"a/b": {"~": A}, "~1": B}, {"a~1b/~0": A, "~01": B}, id="escaped keys"),
    pytest.param({"a": {"": A}}, {"a/": A}, id="empty key"),
    pytest.param({"a": {"0": A, "2": B}}, {"a/0": A, "a/2": B}, id="indices with a gap"),
    pytest.param({"a": {"01": A}}, {"a/01": A}, id="key that only looks like an index"),
    pytest.param({"a": [A] * 11}, {f"a/{index}": A for index in range(11)}, id="more than ten"),
]


@pytest.mark.parametrize(("tree", "named"), TABLE)
def test_trees_are_named_and_restored(tree: dict[str, Any], named: dict[str, Any]) -> None:
    assert named == flatten(tree)
    assert tree == restore(named)


@pytest.mark.parametrize(
    ("tree", "aliases", "expected"),
    [
        pytest.param({"x": [A, B]}, {"x"}, {"x": [A, B]}, id="a list for one input"),
        pytest.param({"x": [1.5, 2]}, (), {"x": [1.5, 2]}, id="a list of numbers"),
        pytest.param({"x": [[b"a"], [b"b"]]}, (), {"x": [[b"a"], [b"b"]]}, id="lists of bytes"),
        pytest.param({"x": []}, (), {"x": []}, id="an empty list"),
        pytest.param({"a": {"b": [1, 2], "c": {}}}, (), {"a/b": [1, 2]}, id="an empty dict"),
        pytest.param({"a/0": A}, {"a/0"}, {"a/0": A}, id="a name of the signature"),
        pytest.param({"a": [{"b": [A, B]}]}, {"a/0/b"}, {"a/0/b": [A, B]}, id="a list for a nested name"),
        pytest.param({"a": (A, B)}, (), {"a/0": A, "a/1": B}, id="a tuple"),
    ],
)
def test_values_that_are_one_array_are_not_branches(
    tree: dict[str, Any], aliases: Any, expected: dict[str, Any]
) -> None:
    assert expected == flatten(tree, aliases)


@pytest.mark.parametrize(
    "arrays", [{"a": A, "a/b": B}, {"a/b": A, "a": B}, {"a/b/c": A, "a/b": B}], ids=["leaf first", "last", "deep"]
)
def test_names_that_form_no_tree_are_returned_unchanged(arrays: dict[str, Any]) -> None:
    assert arrays == restore(arrays)


def test_two_arrays_with_the_same_name_are_a_value_error() -> None:
    with pytest.raises(ValueError, match='two arrays have the name "a/0"; keys joined by "/" must differ'):
        flatten({"a/0": A, "a": [B]}, {"a/0"})


@pytest.mark.parametrize("tree", [{1: A}, {"a": {1: A}}])
def test_a_key_that_is_not_a_str_is_a_type_error(tree: Any) -> None:
    with pytest.raises(TypeError, match="key 1 of an input is int; must be str"):
        flatten(tree)


def test_an_array_instead_of_a_dict_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"^inputs is ndarray; must be a dict of arrays by name$"):
        flatten(np.zeros(2))  # type: ignore[arg-type]
