"""Returns freed memory to the system."""

from __future__ import annotations

import ctypes
import gc

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
if _trim is not None:
    _trim.argtypes = [ctypes.c_size_t]


def release() -> None:
    """Collect garbage and return free memory to the system, from all heaps where the C library supports it.

    Loading a model needs more memory than the loaded model. Python keeps cyclic garbage until its next collection, and
    the C library keeps freed memory for later use, in one heap per thread.
    """
    gc.collect()
    if _trim is not None:
        _trim(0)
