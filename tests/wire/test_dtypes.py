"""The table of element types agrees with TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import StatusError


@pytest.mark.parametrize("dtype", dtypes.BY_NAME.values(), ids=dtypes.BY_NAME)
def test_numbers_and_numpy_dtypes_are_those_of_tensorflow(dtype: dtypes.DType) -> None:
    official = tf.dtypes.as_dtype(dtype.number)
    plain = np.dtype(official.as_numpy_dtype)
    assert (plain[0] if plain.names else plain) == dtype.numpy  # quantised types are records of one field
    assert dtype is dtypes.of_number(dtype.number)


@pytest.mark.parametrize("number", [0, 20, 101, 999])
def test_other_numbers_are_rejected(number: int) -> None:
    with pytest.raises(StatusError, match=rf"^INVALID_ARGUMENT: invalid tensor element type {number}: must be one of"):
        dtypes.of_number(number)


@pytest.mark.parametrize(
    ("expected", "array"),
    [
        pytest.param("int8", np.zeros(1, np.int8), id="not qint8"),
        pytest.param("int32", np.zeros(1, ">i4"), id="byte order"),
        pytest.param("string", np.array(["a"]), id="text"),
        pytest.param("string", np.array([b"a"]), id="bytes"),
        pytest.param("string", np.array([b"a"], object), id="objects"),
    ],
)
def test_the_element_type_of_an_array(expected: str, array: np.ndarray) -> None:
    assert expected == dtypes.of_array(array).name
