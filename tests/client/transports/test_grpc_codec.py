"""Answers over gRPC: whose memory their arrays are in."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from savedmodel_bakery.client.calls import ModelSpec, Predict
from savedmodel_bakery.client.transports.grpc_codec import decode_answer
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.attachments import TensorMessage

BYTES = 36 << 20  # from 32 MB on values are written where they will be aligned
DTYPES = {"float": np.float32, "bfloat16": ml_dtypes.bfloat16, "bool": np.bool_, "complex128": np.complex128}


def ones_and_zeros(dtype: Any, size: int = BYTES) -> np.ndarray:
    """Some of each, [9, …] of `size` bytes."""
    return np.resize(np.array([0, 1, 1], dtype), (9, size // 9 // np.dtype(dtype).itemsize))


def answer(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A response with `arrays`, as gRPC hands it over."""
    message = TensorMessage(schema.PredictResponse(), "outputs")
    for alias, array in arrays.items():
        message.add(alias, array, packed=True)
    return bytes(bytearray(message.SerializeToString()))


def read(content: bytes) -> Mapping[str, np.ndarray]:
    """The arrays of a response."""
    found: Mapping[str, np.ndarray] = decode_answer(
        Predict(ModelSpec("m"), "serving_default", {}, (), None), content
    ).arrays
    return found


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_an_array_that_is_most_of_an_answer_is_not_copied(dtype: Any) -> None:
    array = ones_and_zeros(dtype)
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
    array = ones_and_zeros(np.float32)
    content = answer({"y": array, "z": array})
    for copied in read(content).values():
        assert not np.shares_memory(copied, np.frombuffer(content, np.uint8))
        copied[...] = 1


@pytest.mark.parametrize("places", range(8))
def test_an_array_is_aligned_wherever_it_stands_in_the_message(places: int) -> None:
    array = ones_and_zeros(np.float64, 9 << 20)
    found = read(answer({"y" * (1 + places): array}))["y" * (1 + places)]
    assert found.flags.aligned
    assert found.flags.writeable
    np.testing.assert_array_equal(array, found)
