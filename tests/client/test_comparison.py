"""Which outputs agree with the expected ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from savedmodel_bakery.client.comparison import compare

NAN = float("nan")


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
