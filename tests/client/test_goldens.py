"""Replayed goldens, and which outputs agree; tests/e2e/test_goldens.py replays those of a baked version."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from savedmodel_bakery import AccessDeniedError, RequestRefusedError
from savedmodel_bakery.client.goldens import Golden, compare, replay
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import Code

NAN = float("nan")
GOLDEN = Golden("serving_default", 1, schema.PredictRequest(), {})


def client_that_raises(error: Exception) -> SimpleNamespace:
    def predict(*_: object, **__: object) -> None:
        raise error

    return SimpleNamespace(predict=predict)


@pytest.mark.parametrize(
    ("labels", "scores", "differing"),
    [
        pytest.param("abcd", [0.895, 0.05, 0.042, 0.012], [], id="the same"),
        pytest.param("acbd", [0.89, 0.045, 0.044, 0.012], [], id="two labels changed places"),
        pytest.param("abce", [0.89, 0.05, 0.04, 0.01], [], id="another last label with a small score"),
        pytest.param("bacd", [0.89, 0.05, 0.04, 0.01], ["labels"], id="another best label"),
        pytest.param("abcd", [0.87, 0.05, 0.04, 0.01], ["scores"], id="another score"),
    ],
)
def test_labels_may_change_places_if_their_scores_are_within_the_tolerance(
    labels: str, scores: list[float], differing: list[str]
) -> None:
    expected = {"labels": np.array([list("abcd")], object), "scores": np.float32([[0.89, 0.05, 0.04, 0.01]])}
    arrays = {"labels": np.array([list(labels)], object), "scores": np.float32([scores])}
    client = SimpleNamespace(predict=lambda *_, **__: SimpleNamespace(arrays=arrays))
    golden = Golden("top_k", 1, schema.PredictRequest(), expected)
    differences = replay(golden, client, {"scores": 0.01})
    assert differing == [text.split('"')[1] for text in differences]
    strict = replay(golden, client, {"scores": 0.001})
    assert (labels == "abcd") is not any("labels" in text for text in strict)


def test_a_refused_request_differs_and_a_refused_token_ends_the_replay() -> None:
    refused = RequestRefusedError(Code.INVALID_ARGUMENT, "no image")
    assert ["INVALID_ARGUMENT: no image"] == replay(GOLDEN, client_that_raises(refused), {})
    with pytest.raises(AccessDeniedError):
        replay(GOLDEN, client_that_raises(AccessDeniedError(Code.UNAUTHENTICATED, "no token")), {})


@pytest.mark.parametrize(
    ("expected", "actual", "atol"),
    [
        pytest.param(np.float32([1, NAN, np.inf]), np.float32([1.25, NAN, np.inf]), 0.5, id="float32"),
        pytest.param(np.complex64([1 + 1j]), np.complex64([1 + 1.25j]), 0.5, id="complex64"),
        pytest.param(np.array([1], ml_dtypes.bfloat16), np.array([1.25], ml_dtypes.bfloat16), 0.5, id="bfloat16"),
        pytest.param(np.float64([NAN, 2]), np.float64([NAN, 2]), 0.0, id="not a number, exactly"),
        pytest.param(np.array([b"a", b""], object), np.array([b"a", b""], object), 0.0, id="strings"),
        pytest.param(np.zeros([0, 3], np.float32), np.zeros([0, 3], np.float32), 0.5, id="nothing"),
        pytest.param(np.zeros([0, 32, 3], np.float32), np.zeros([0], np.float32), 0.5, id="nothing, in JSON"),
        pytest.param(np.zeros([2, 0, 3], np.int32), np.zeros([2, 0], np.int32), 0.0, id="two times nothing, in JSON"),
    ],
)
def test_outputs_that_agree(expected: np.ndarray, actual: np.ndarray, atol: float) -> None:
    assert [] == compare({"y": expected}, {"y": actual}, lambda _: atol)


@pytest.mark.parametrize(("actual", "is_same"), [("42102", True), ("421O3", True), ("426", False), ("~", False)])
def test_masks_may_differ_by_a_part_of_their_pixels(actual: str, is_same: bool) -> None:
    """The expected one has four pixels, the second three of them, the third half of them."""
    expected, other = (np.array([[text.encode(), b""]], object) for text in ("42102", actual))
    differences = compare({"a_mask_counts": expected}, {"a_mask_counts": other}, lambda _: 0.26)
    assert is_same is not bool(differences)
    assert (actual == "42102") is not bool(compare({"mask_counts": expected}, {"mask_counts": other}, lambda _: 0.0))


@pytest.mark.parametrize(
    ("expected", "actual", "atol", "text"),
    [
        pytest.param(np.float32([1]), np.float32([2]), 0.5, '"y" differs by 1; allowed is 0.5', id="too far"),
        pytest.param(np.float32([NAN]), np.float32([2]), 0.5, '"y" differs by inf; allowed is 0.5', id="a number"),
        pytest.param(np.float32([2]), np.float32([np.inf]), 0.5, '"y" differs by inf; allowed is 0.5', id="infinite"),
        pytest.param(np.complex64([1j]), np.complex64([2j]), 0.5, '"y" differs by 1; allowed is 0.5', id="complex64"),
        pytest.param(
            np.int32([1, 2]), np.int32([1, 3]), 0.0, '"y" is np.int32(3) at [1], expected np.int32(2)', id="int"
        ),
        pytest.param(np.float32([1]), np.float64([1]), 0.5, '"y" is float64, expected float32', id="type"),
        pytest.param(np.float32([1]), np.float32([1, 1]), 0.5, '"y" has shape [2], expected [1]', id="shape"),
        pytest.param(
            np.zeros([0, 3], np.float32),
            np.zeros([0, 4], np.float32),
            0.5,
            '"y" has shape [0, 4], expected [0, 3]',
            id="shape of nothing",
        ),
        pytest.param(
            np.zeros([0, 3], np.float32),
            np.zeros([], np.float32),
            0.5,
            '"y" has shape [], expected [0, 3]',
            id="scalar",
        ),
    ],
)
def test_outputs_that_differ(expected: np.ndarray, actual: np.ndarray, atol: float, text: str) -> None:
    assert [text] == compare({"y": expected}, {"y": actual}, lambda _: atol)
