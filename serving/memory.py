"""The memory of this process: how much it may use, how much it uses, and how to return what is free to the system."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from pathlib import Path

from savedmodel_bakery.serving import control_groups

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
if _trim is not None:
    _trim.argtypes = [ctypes.c_size_t]

# Parameters of mallopt(3), and values for them: freed memory is kept until `trim`, because new memory costs time.
# Without fast bins, what is left over beside an aligned array is joined with it when it is freed.
_M_TOP_PAD = -2  # maps memory before it is needed, so not if that is limited
_MALLOPT = {1: 0, -1: 2**29, _M_TOP_PAD: 2**26, -3: 2**25}  # M_MXFAST, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD (maximum)


def use_system_allocator() -> None:
    """Let TensorFlow use the C library's memory, which `trim` returns. Call it before TensorFlow is imported.

    With oneDNN, TensorFlow has a pool of its own that grows to the largest burst of requests and never shrinks. It is
    faster: an operator who prefers it sets TF_ONEDNN_USE_SYSTEM_ALLOCATOR=0, and the C library keeps its defaults too.
    """
    if os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1") == "0":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    if mallopt is not None:
        for parameter, value in _MALLOPT.items():
            if parameter != _M_TOP_PAD or data_limit_bytes() is None:
                mallopt(parameter, value)


def release() -> None:
    """Collect garbage and return free memory to the system, from all heaps where the C library supports it.

    Loading a model needs more memory than the loaded model. Python keeps cyclic garbage until its next collection, and
    the C library keeps freed memory for later use, in one heap per thread.
    """
    gc.collect()
    trim()


def trim() -> None:
    """Return free memory to the system, without a collection of garbage."""
    if _trim is not None:
        _trim(0)


def resident_bytes() -> int:
    """Return the physical memory that this process uses."""
    return _statm(1)


def data_bytes() -> int:
    """Return the private memory that this process has mapped, whether it uses it or not."""
    return _statm(5)


def data_limit_bytes() -> int | None:
    """Return how much private memory this process may map; None without a limit. See getrlimit(2) on RLIMIT_DATA."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if limit == resource.RLIM_INFINITY else limit


def _statm(field: int) -> int:
    """Return a size of this process in bytes; see proc_pid_statm(5)."""
    return int(Path("/proc/self/statm").read_text().split()[field]) * os.sysconf("SC_PAGE_SIZE")


def limit_bytes() -> int:
    """Return the memory of the machine, or the limit of the process or its control group (version 1 or 2) if lower.

    Source: the kernel's documentation of control groups (memory.max, memory.limit_in_bytes).
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    files = (
        folder / name for folder in control_groups.folders("memory") for name in ("memory.max", "memory.limit_in_bytes")
    )
    others = (data_limit_bytes(), *map(control_groups.read_number, files))
    return min([machine, *(limit for limit in others if limit is not None)])
