"""Freed memory goes back to the system."""

from __future__ import annotations

import ctypes
from pathlib import Path

from serving import memory

MB = 2**20


def resident() -> int:
    """Bytes of this process that are in memory and no file's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("RssAnon"))
    return int(kilobytes) * 1024


def test_what_is_free_below_something_in_use_goes_back() -> None:
    """The C library itself gives back only what is free at a heap's end."""
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    blocks = [library.malloc(64 * 1024) for _ in range(2000)]
    for block in blocks:
        ctypes.memset(block, 1, 64 * 1024)
    for block in blocks[:-1]:
        library.free(ctypes.c_void_p(block))
    before = resident()
    memory.release()
    assert resident() < before - 100 * MB
    library.free(ctypes.c_void_p(blocks[-1]))
