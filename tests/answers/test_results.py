"""Results are equal if their values are, also those with arrays."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from savedmodel_bakery import Embedding, Prediction

ZEROS = np.zeros(3, np.float32)
PREDICTION = Prediction({"a": ZEROS, "b": np.array([b"x"], object)}, "flowers", 1, "top_k")
OTHERS = {
    "another value": (Embedding(True, None, ZEROS), Embedding(True, None, ZEROS + 1)),
    "another length": (Embedding(True, None, ZEROS), Embedding(True, None, ZEROS[:2])),
    "no vector": (Embedding(True, None, ZEROS), Embedding(True, None)),
    "another error": (Embedding(False, "empty"), Embedding(False, "damaged")),
    "another type": (Embedding(False, "empty"), "empty"),
    "another array": (PREDICTION, dataclasses.replace(PREDICTION, arrays={**PREDICTION.arrays, "a": ZEROS + 1})),
    "another text": (PREDICTION, dataclasses.replace(PREDICTION, arrays={"a": ZEROS, "b": np.array([b"y"], object)})),
    "another dtype": (PREDICTION, dataclasses.replace(PREDICTION, arrays={**PREDICTION.arrays, "a": np.zeros(3)})),
    "another output": (PREDICTION, dataclasses.replace(PREDICTION, arrays={"a": ZEROS, "c": ZEROS})),
    "fewer outputs": (PREDICTION, dataclasses.replace(PREDICTION, arrays={"a": ZEROS})),
    "another version": (PREDICTION, dataclasses.replace(PREDICTION, version=2)),
}


@pytest.mark.parametrize("pair", OTHERS.values(), ids=OTHERS)
def test_results_with_other_values_differ(pair: tuple[object, object]) -> None:
    one, other = pair
    assert one != other
    assert other != one


def test_results_with_the_same_values_are_equal() -> None:
    assert Embedding(True, None, ZEROS) == Embedding(True, None, ZEROS.copy())
    assert Embedding(False, "empty") == Embedding(False, "empty")
    assert 1 == len({Embedding(True, None, ZEROS), Embedding(True, None, ZEROS.copy())})
    assert dataclasses.replace(PREDICTION, arrays={alias: a.copy() for alias, a in PREDICTION.arrays.items()}) == (
        PREDICTION
    )
