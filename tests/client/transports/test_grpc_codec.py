"""Responses over gRPC: their arrays belong to the caller."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from savedmodel_bakery.client.calls import ModelSpec, Predict
from savedmodel_bakery.client.transports.grpc_codec import decode_response
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.attachments import TensorMessage

DTYPES = {"float": np.float32, "bfloat16": ml_dtypes.bfloat16, "bool": np.bool_, "complex128": np.complex128}
SIZES = {"small": 9, "large": 9 << 20}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "typed"])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_arrays_are_writable_and_do_not_keep_the_response_in_memory(dtype: Any, packed: bool, size: int) -> None:
    array = np.resize(np.array([0, 1, 1], dtype), (9, max(size // 9 // np.dtype(dtype).itemsize, 1)))
    message = TensorMessage(schema.PredictResponse(), "outputs")
    message.add("y", array, packed=packed)
    content = message.SerializeToString()
    decoded = decode_response(Predict(ModelSpec("m"), "serving_default", {}, (), None), content).arrays["y"]
    assert array.dtype == decoded.dtype
    np.testing.assert_array_equal(array, decoded)
    assert not np.shares_memory(decoded, np.frombuffer(content, np.uint8))
    decoded[...] = 1
    assert (decoded == 1).all()
