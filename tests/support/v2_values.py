"""Values of every datatype."""

from __future__ import annotations

import ml_dtypes
import numpy as np

VALUES = {
    "BOOL": np.array([True, False]),
    "UINT8": np.array([[0, 255]], np.uint8),
    "UINT16": np.array([0, 65535], np.uint16),
    "UINT32": np.array([2**32 - 1], np.uint32),
    "UINT64": np.array([2**64 - 1, 0], np.uint64),
    "INT8": np.array([-128, 127], np.int8),
    "INT16": np.array([-32768, 32767], np.int16),
    "INT32": np.array([[-(2**31)], [2**31 - 1]], np.int32),
    "INT64": np.array(-(2**63), np.int64),
    "FP16": np.array([1.5, -2], np.float16),
    "FP32": np.array([[0.1, np.inf], [-np.inf, 1e-42]], np.float32),
    "FP64": np.array([0.1, 5e-324], np.float64),
    "BYTES": np.array([b"", b"\xff\x00", "é".encode()], object),
    "BF16": np.array([1.5, 256], ml_dtypes.bfloat16),
}
