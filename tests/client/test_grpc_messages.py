"""Answers over gRPC: whose memory their arrays are in."""

from __future__ import annotations

import gc
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from client.grpc_messages import decode_answer
from client.questions import ModelSpec, Predict
from wire import large, schema

SIZE = 9 << 20  # of float32 more than malloc keeps, so that values are aligned
ARRAYS = {
    "float": np.arange(SIZE, dtype=np.float32).reshape(9, -1),
    "bfloat16": np.arange(2 * SIZE).astype(ml_dtypes.bfloat16),
    "bool": np.arange(4 * SIZE) % 3 == 0,
}


def answer(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A response with `arrays`, as gRPC hands it over."""
    message = large.Message(schema.PredictResponse(), "outputs")
    for alias, array in arrays.items():
        message.add(alias, array, packed=True)
    return bytes(bytearray(message.SerializeToString()))


def read(content: bytes) -> Mapping[str, np.ndarray]:
    """The arrays of a response."""
    found: Mapping[str, np.ndarray] = decode_answer(
        Predict(ModelSpec("m"), "serving_default", {}, (), None), content
    ).arrays
    return found


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_an_array_that_is_most_of_an_answer_is_not_copied(array: np.ndarray) -> None:
    content = answer({"y": array, "z": np.arange(3)})
    found = read(content)["y"]
    assert np.shares_memory(found, np.frombuffer(content, np.uint8))
    del content
    gc.collect()
    assert array.dtype == found.dtype
    np.testing.assert_array_equal(array, found)
    found[...] = 1
    assert (found == 1).all()


def test_arrays_of_which_none_is_most_of_an_answer_are_copied() -> None:
    """Else one that is kept would keep the others too."""
    content = answer({"y": ARRAYS["float"], "z": ARRAYS["float"] + 1})
    for array in read(content).values():
        assert not np.shares_memory(array, np.frombuffer(content, np.uint8))
        array[...] = 1
