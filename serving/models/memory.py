"""What the C library is told about memory: how to take it, and when to give it back."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from contextlib import suppress
from pathlib import Path

_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_TUNABLES, _HUGE = "GLIBC_TUNABLES", "glibc.malloc.hugetlb"
# Says so, and what the tunables were before; they don't, as glibc drops them where a program has special rights.
_STARTED_AGAIN = "SAVEDMODEL_BAKERY_STARTED_AGAIN"
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl and macOS don't
if _trim is not None:
    _trim.argtypes = [ctypes.c_size_t]


def start_with_huge_pages() -> None:
    """Start this program again, in the same process, with huge pages where the system gives them to who asks.

    A large message lies in several buffers, most of them gRPC's, and half of its time goes into getting their pages
    (`python -m benchmarks.large`). malloc of glibc asks for huge ones only if told so before the process starts (since
    2.35; "Memory Allocation Tunables" of its manual); what the user has told it stands, and is what other programs
    that this one starts are told.
    """
    told = os.environ.get(_TUNABLES, "")
    if _STARTED_AGAIN in os.environ:
        os.environ[_TUNABLES] = os.environ.pop(_STARTED_AGAIN)
    elif sys.executable and _HUGE not in told:
        with suppress(OSError):  # no Linux, or one without huge pages
            if "[madvise]" in _HUGE_PAGES.read_text():
                environment = {_STARTED_AGAIN: told, _TUNABLES: f"{told}:{_HUGE}=1".lstrip(":")}
                os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **environment})


def release() -> None:
    """Give back what is free, in all heaps where the C library can do that.

    Loading takes more than what is loaded. Of that, and of what is unloaded, Python keeps what refers to itself until
    it happens to look for it, and the C library all the rest for later, in as many heaps as there are threads.
    """
    gc.collect()
    if _trim is not None:
        _trim(0)
