"""This process: the memory and the threads that it may use, and the signals that stop it."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_SHARE_OF_THREADS = 0.5
_MOST = 100_000  # if no limit is known
_SHARE_OF_MEMORY = 0.25
_STACK_BYTES = 8 * 2**20  # of a thread, if the size of stacks is not limited

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
if _trim is not None:
    _trim.argtypes = [ctypes.c_size_t]

# Parameters of mallopt(3), and values for them: all memory comes from one heap, and what is freed stays there for later
# requests until `trim_memory`. The kernel must clear new memory, which took more time than decoding a photo of 12
# megapixels. By default, and in the heaps of other threads, glibc maps new memory for each block above 32 MiB
# (sysmalloc in malloc/malloc.c). Without fast bins, what is left over beside an aligned array is joined with it.
_M_TOP_PAD = -2  # maps memory before it is needed, so not if that is limited
_MALLOPT = {1: 0, -1: -1, _M_TOP_PAD: 2**26, -4: 0, -8: 1}  # M_MXFAST, M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX


def use_system_allocator() -> None:
    """Let TensorFlow use the C library's memory, which `trim_memory` returns.

    Call it before other threads start, and before TensorFlow is imported. Only in a process that trims.

    With oneDNN, TensorFlow has a pool of its own that grows to the largest burst of requests and never shrinks. An
    operator who prefers it sets TF_ONEDNN_USE_SYSTEM_ALLOCATOR=0, and the C library keeps its defaults too.
    """
    if os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1") == "0":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    if mallopt is not None:
        for parameter, value in _MALLOPT.items():
            if parameter != _M_TOP_PAD or data_limit_bytes() is None:
                mallopt(parameter, value)


def release_memory() -> None:
    """Collect garbage and return free memory to the system, from all heaps where the C library supports it.

    Loading a model needs more memory than the loaded model. Python keeps cyclic garbage until its next collection, and
    the C library keeps freed memory for later use.
    """
    gc.collect()
    trim_memory()


def trim_memory() -> None:
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


def memory_limit_bytes() -> int:
    """Return the memory of the machine, or the limit of the process or its control group (version 1 or 2) if lower."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    files = (folder / name for folder in control_groups("memory") for name in ("memory.max", "memory.limit_in_bytes"))
    others = (data_limit_bytes(), *map(read_number, files))
    return min([machine, *(limit for limit in others if limit is not None)])


def control_groups(controller: str) -> Iterator[Path]:
    """Yield the folders of the process's group and of those above it, version 1 or 2; see cgroups(7)."""
    try:
        lines = _GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root = _MOUNT
        elif controller in controllers.split(","):
            root = _MOUNT / controller
        else:
            continue
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            yield folder
            if folder == root:
                break


def read_number(path: Path) -> int | None:
    """Return the number in a file; None if it has none, as `max` means no limit, or can't be read."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def count_call_threads() -> int:
    """Return how many threads calls may have: half of those that this process could start now, at least 1.

    The others are for TensorFlow and gRPC, which end the process if they can't start one, and for loading models. If
    the data of the process is limited, the stacks of calls may take a quarter of what is left.

    Sources: getrlimit(2) on RLIMIT_NPROC, proc(5) on threads-max, pid_max and loadavg, and the kernel's
    documentation of control groups (pids.max).
    """
    return max(1, min([*(int(_SHARE_OF_THREADS * count) for count in _startable()), *_fitting()], default=_MOST))


def _startable() -> Iterator[int]:
    kernel = _PROC / "sys/kernel"
    running = int((_PROC / "loadavg").read_text().split()[3].partition("/")[2])
    for limit in (read_number(kernel / name) for name in ("threads-max", "pid_max")):
        if limit is not None:
            yield limit - running
    of_user, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if of_user != resource.RLIM_INFINITY and os.getuid() != 0:  # it does not hold for root
        yield of_user - _threads_of_user()
    for folder in control_groups("pids"):
        limit, current = (read_number(folder / name) for name in ("pids.max", "pids.current"))
        if limit is not None and current is not None:
            yield limit - current


def _fitting() -> Iterator[int]:
    """Yield how many threads' stacks fit into their share of the process's data, if that is limited."""
    data = data_limit_bytes()
    if data is not None:
        stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
        free = data - data_bytes()
        yield int(_SHARE_OF_MEMORY * free) // (_STACK_BYTES if stack == resource.RLIM_INFINITY else stack)


def _threads_of_user() -> int:
    """Return how many threads the processes of this process's user have; see proc_pid_status(5)."""
    user, count = str(os.getuid()), 0
    for folder in _PROC.glob("[0-9]*"):
        try:
            lines = (folder / "status").read_text(errors="replace").splitlines()
        except OSError:  # it has ended
            continue
        fields = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
        if fields["Uid"][0] == user:
            count += int(fields["Threads"][0])
    return count


class StopSignals:
    """Calls an action for each SIGTERM and SIGINT; it may be replaced later, and its errors are logged.

    A signal handler of Python runs on the main thread, between two steps of whatever that thread does: it waits for
    ever if it needs a lock that the main thread holds at that moment. So it does nothing here, and a thread reads the
    signals from a pipe. Create this on the main thread.
    """

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action
        self._received, written = os.pipe()
        os.set_blocking(written, False)
        signal.set_wakeup_fd(written)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._run, name="signals", daemon=True).start()

    def _run(self) -> None:
        while received := os.read(self._received, 1):
            if received[0] not in _SIGNALS:  # one that other code has a handler for
                continue
            try:
                self.action()
            except Exception:
                logger.exception("Failed to stop")
