"""Memory that the process no longer needs, given back to the system.

Loading takes more than what is loaded. Of that, and of what is unloaded, Python keeps what refers to itself until it
happens to look for it, and the C library all the rest for later, in as many heaps as there are threads.
"""

from __future__ import annotations

import ctypes
import gc

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl and macOS don't
if _trim is not None:
    _trim.argtypes = [ctypes.c_size_t]


def release() -> None:
    """Give back what is free, in all heaps where the C library can do that."""
    gc.collect()
    if _trim is not None:
        _trim(0)
