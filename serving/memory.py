"""The memory of this process: how much it may use, how much it uses, and how to return what is free to the system."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from pathlib import Path

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
if _trim is not None:
    _trim.argtypes = [ctypes.c_size_t]

# Parameters of mallopt(3), and values for them: freed memory is kept until `trim`, because new memory costs time.
# Without fast bins, what is left over beside an aligned array is joined with it when it is freed.
_MALLOPT = {1: 0, -1: 2**29, -2: 2**26, -3: 2**25}  # M_MXFAST, M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD (maximum)

_CGROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


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
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def limit_bytes() -> int:
    """Return the memory of the machine, or the limit of the process or its control group (version 1 or 2) if lower.

    Sources: getrlimit(2) on RLIMIT_DATA, cgroups(7), and the kernel's documentation of control groups (memory.max,
    memory.limit_in_bytes).
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    process, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return min([machine, *([] if process == resource.RLIM_INFINITY else [process]), *_group_limits()])


def _group_limits() -> list[int]:
    """Return the limits of the process's group and of those above it, where they are visible."""
    try:
        lines = _CGROUPS.read_text().splitlines()
    except OSError:
        return []
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = _MOUNT, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = _MOUNT / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            limits += _read_limit(folder / name)
            if folder == root:
                break
    return limits


def _read_limit(path: Path) -> list[int]:
    try:
        text = path.read_text().strip()
    except OSError:
        return []
    return [int(text)] if text.isdigit() else []  # "max" is no limit
