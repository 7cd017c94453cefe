"""Callers can't make a model fetch ever new lists of tensors, each of which TensorFlow would keep."""

from __future__ import annotations

from itertools import combinations, permutations

from savedmodel_bakery.serving.runtimes.fetches import FetchLists
from savedmodel_bakery.wire import schema

ALL = ("a:0", "b:0", "c:0", "d:0")


def signature(inputs: str, outputs: str) -> object:
    """A SignatureDef; names of tensors are one letter each."""
    made = schema.SignatureDef()
    for name in inputs:
        made.inputs[name].name = f"{name}:0"
    for name in outputs:
        made.outputs[name].name = f"{name}:0"
    return made


LISTS = {"small": signature("x", "abcd"), "large": signature("xy", "abcdef")}


def test_the_order_and_repetitions_make_no_new_list() -> None:
    lists = FetchLists(LISTS, max_lists=1)
    assert {ALL} == {lists.choose(["x:0"], order) for order in permutations(ALL)}
    assert lists.choose(["x:0"], (*ALL, *ALL)) == ALL


def test_beyond_the_limit_a_request_fetches_all_outputs_of_its_signature() -> None:
    lists = FetchLists(LISTS, max_lists=3)
    subsets = [subset for size in range(1, 5) for subset in combinations(ALL, size)]
    chosen = [lists.choose(["x:0"], subset) for subset in subsets]
    assert {*subsets[:3], ALL} == set(chosen)
    assert [*subsets[:3], ALL] == [*chosen[:3], lists.choose(["x:0"], subsets[-2])]


def test_a_wider_list_needs_no_other_inputs() -> None:
    lists = FetchLists(LISTS, max_lists=0)
    assert lists.choose(["x:0"], ["e:0"]) == ("e:0",)
    assert lists.choose(["x:0", "y:0"], ["e:0"]) == (*ALL, "e:0", "f:0")
