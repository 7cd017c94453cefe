"""Copies arrays out of responses, which would otherwise stay in memory as long as the arrays."""

from __future__ import annotations

import numpy as np


def detach(array: np.ndarray) -> np.ndarray:
    """Return an array that shares no memory with a response: a copy if the array is read-only."""
    if array.flags.writeable:
        return array
    # Copied into a bytearray: numpy would request huge pages, which took three times as long for 512 MiB.
    values = bytearray(array.reshape(-1).view(np.uint8))
    return np.frombuffer(values, np.uint8).view(array.dtype).reshape(array.shape)
