"""Tasks embed, regress and tensors: what the graph computes, and which differences are noticed."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.exporter.tasks.task import Answers, NetworkResult, Tolerance
from savedmodel_bakery.exporter.tasks.unlabelled import Embed, Regress, Tensors

VECTORS = np.array([[3.0, 4.0], [0.0, 0.0], [-1.0, 0.0]], np.float32)


def result(vector: np.ndarray) -> NetworkResult:
    return NetworkResult({"vector": vector}, (1, 1))


def embedding(vector: tuple[float, ...]) -> Answers:
    return {"serving_default": {"embedding": np.array(vector, np.float32)}}


def test_vectors_are_divided_by_their_length() -> None:
    for name, expected in (("l2", [[0.6, 0.8], [0, 0], [-1, 0]]), ("none", VECTORS)):
        for signature in Embed(2, name).signatures().values():
            (vectors,) = signature.compute({"vector": tf.constant(VECTORS)}, tf.ones([3, 2]))
            np.testing.assert_allclose(vectors.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("vector", "normalise", "is_within", "distance"),
    [
        ((3, 4), "none", True, 0),
        ((3.01, 4), "none", True, 0),
        ((4, 3), "none", False, 0.04),
        ((-3, -4), "none", False, 2),
        ((0, 0), "none", False, 1),
        ((0.6, 0.8), "none", False, 0.32),  # another length
        ((0.6, 0.8), "l2", True, 0),
        ((3, 4), "l2", False, 8),
    ],
)
def test_angles_and_lengths_of_vectors_are_compared(
    vector: tuple[float, ...], normalise: str, is_within: bool, distance: float
) -> None:
    task = Embed(2, normalise)
    comparison = task.compare(embedding(vector), result(VECTORS[0]), task.tolerance)
    assert (is_within, pytest.approx(distance, abs=1e-4)) == (comparison.is_within, comparison.difference)


@pytest.mark.parametrize("length", [1e-20, 1e-10, 1e20])
def test_vectors_of_any_length_get_length_1(length: float) -> None:
    """Their squares are beyond float32, or below the epsilon of TensorFlow's own function."""
    vector = np.array([0.6, 0.8], np.float32) * np.float32(length)
    task = Embed(2, "l2")
    (vectors,) = task.signatures()["serving_default"].compute({"vector": tf.constant([vector])}, tf.ones([1, 2]))
    np.testing.assert_allclose(vectors.numpy(), [[0.6, 0.8]], rtol=1e-6)
    assert task.compare(embedding(vectors.numpy()[0]), result(vector), Tolerance(atol=1e-6)).is_within


@pytest.mark.parametrize(
    ("vector", "ends_in_sigmoid", "last"),
    [
        ((0.25, 0.75), False, "softmax"),
        ((0.5, 0.7), True, "sigmoid"),
        ((0.5, 0.7), False, None),
        ((-0.5, 1.5), False, None),
    ],
)
def test_a_vector_of_scores_is_doubtful(vector: tuple[float, ...], ends_in_sigmoid: bool, last: str | None) -> None:
    task = Embed(2, "none", ends_in_sigmoid)
    doubts = task.compare(embedding(vector), result(np.array(vector, np.float32)), task.tolerance).doubts
    assert ([] if last is None else [f"the values of the vector look like the output of a classifier's {last}"]) == [
        doubt.reason for doubt in doubts
    ]


def test_blank_vectors_are_equal() -> None:
    assert Embed(2, "l2").compare(embedding((0, 0)), result(VECTORS[1]), Embed.tolerance).is_within


def test_each_number_has_an_output_of_its_name() -> None:
    signatures = Regress(("width", "height")).signatures()
    assert ["serving_default", "pixels"] == list(signatures)
    assert ["width", "height"] == list(signatures["pixels"].columns)
    width, height = signatures["serving_default"].compute({"vector": tf.constant(VECTORS)}, tf.ones([3, 2]))
    assert ([3, 0, -1], [4, 0, 0]) == (width.numpy().tolist(), height.numpy().tolist())
    assert "regress" in Regress(("value",)).signatures()


@pytest.mark.parametrize(
    ("values", "is_within", "difference"),
    [((3, 4), True, 0), ((3.02, 4), True, 0.02), ((3, 4.1), False, 0.1), ((0, 4), False, 3)],
)
def test_numbers_may_differ_by_a_part_of_those_expected(
    values: tuple[float, float], is_within: bool, difference: float
) -> None:
    task = Regress(("width", "height"))
    answers = {"serving_default": dict(zip(task.names, np.array(values, np.float32), strict=True))}
    comparison = task.compare(answers, result(VECTORS[0]), task.tolerance)
    assert (is_within, pytest.approx(difference, abs=1e-6)) == (comparison.is_within, comparison.difference)
    assert comparison.answer.startswith("width ")


def test_a_number_near_zero_may_differ_by_rounding() -> None:
    task = Regress(("value",))
    for value, is_within in ((1e-6, True), (1e-3, False)):
        answers = {"serving_default": {"value": np.float32(value)}}
        comparison = task.compare(answers, result(np.zeros(1, np.float32)), task.tolerance)
        assert (is_within, pytest.approx(value)) == (comparison.is_within, comparison.difference)


@pytest.mark.parametrize(("value", "is_within"), [(100.0, True), (100.9, True), (102.0, False)])
def test_a_tensor_may_differ_by_a_part_of_its_largest_value(value: float, is_within: bool) -> None:
    task = Tensors({"map": ((2,), np.dtype(np.float32)), "count": ((), np.dtype(np.int32))})
    answers = {"serving_default": {"map": np.array([0.5, value], np.float32), "count": np.int32(3)}}
    expected = NetworkResult({"map": np.array([0, 100], np.float32), "count": np.float32(3)}, (1, 1))
    comparison = task.compare(answers, expected, task.tolerance)
    assert is_within == comparison.is_within
    assert max(0.5, value - 100) / 100 == pytest.approx(comparison.difference, abs=1e-6)
    assert "map [0, 100], count [3]" == comparison.expected
    other = task.compare(
        {"serving_default": {**answers["serving_default"], "count": np.int32(4)}}, expected, task.tolerance
    )
    assert not other.is_within
