"""How many threads the system permits this process."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from savedmodel_bakery.serving import control_groups, memory

_PROC = Path("/proc")
_SHARE_OF_THREADS = 0.5
_MOST = 100_000  # if no limit is known
_SHARE_OF_MEMORY = 0.25
_STACK_BYTES = 8 * 2**20  # of a thread, if the size of stacks is not limited


def for_calls() -> int:
    """Return how many threads calls may have: half of those that this process could start now, at least 1.

    The others are for TensorFlow and gRPC, which end the process if they can't start one, and for loading models. If
    the data of the process is limited, the stacks of calls may take a quarter of what is left.

    Sources: getrlimit(2) on RLIMIT_NPROC, proc(5) on threads-max, pid_max and loadavg, and the kernel's
    documentation of control groups (pids.max).
    """
    return max(1, min([*(int(_SHARE_OF_THREADS * count) for count in _startable()), *_fitting()], default=_MOST))


def _startable() -> Iterator[int]:
    """Yield how many threads could be started now by each of the limits."""
    kernel = _PROC / "sys/kernel"
    running = int((_PROC / "loadavg").read_text().split()[3].partition("/")[2])
    for limit in (control_groups.read_number(kernel / name) for name in ("threads-max", "pid_max")):
        if limit is not None:
            yield limit - running
    of_user, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if of_user != resource.RLIM_INFINITY and os.getuid() != 0:  # it does not hold for root
        yield of_user - _threads_of_user()
    for folder in control_groups.folders("pids"):
        limit, current = (control_groups.read_number(folder / name) for name in ("pids.max", "pids.current"))
        if limit is not None and current is not None:
            yield limit - current


def _fitting() -> Iterator[int]:
    """Yield how many threads' stacks fit into their share of the process's data, if that is limited."""
    data = memory.data_limit_bytes()
    if data is not None:
        stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
        free = data - memory.data_bytes()
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
