"""Memory that the process has freed, given back to the system.

Loading takes more than what is loaded, and the C library keeps the rest for later, in as many heaps as there are
threads; tensorflow_model_server has its own give it back after each load.
"""

from __future__ import annotations

import ctypes

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl and macOS don't


def release() -> None:
    """Give back what is free, in all heaps; 10 ms, and nothing where the C library has no such call."""
    if _trim is not None:
        _trim(0)
