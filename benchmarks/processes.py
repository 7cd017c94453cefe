"""Starts servers on loopback ports, measures CPU time and memory of their process trees, and ends them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

START_LIMIT_S = 180
STOP_LIMIT_S = 10
SAMPLE_S = 0.02


class ServerStartError(Exception):
    """A server exited or does not listen; the message has the last line of its log."""


def free_port() -> int:
    """Return a free TCP port of the loopback address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def on_cpus(cpus: Collection[int]) -> Iterator[None]:
    """Run this thread, and the threads and processes that it starts in the block, on these CPUs only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Server:
    """A server process with its own process group; a context manager that ends it.

    Args:
        command: the program and its arguments.
        port: loopback port on which it listens when it is ready.
        log: file for stdout and stderr.
        environment: variables that are added to those of this process.
        folder: working directory; by default that of this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int,
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._log = log
        self._port = port
        with log.open("w") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait_until_listening(self) -> None:
        """Return when the server accepts connections.

        Raises:
            ServerStartError: it exited, or did not listen in time.
        """
        end_s = time.monotonic() + START_LIMIT_S
        while not _is_listening(self._port):
            if self._process.poll() is not None or time.monotonic() > end_s:
                raise ServerStartError(_last_line(self._log))
            time.sleep(0.05)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        """End the server and all processes of its group."""
        self._process.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_LIMIT_S)
        finally:
            with suppress(ProcessLookupError):  # the group is empty
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Tree:
    """Processes and all descendants that they have now."""

    def __init__(self, pids: Sequence[int]) -> None:
        roots = [psutil.Process(pid) for pid in pids]
        self._processes = [process for root in roots for process in (root, *root.children(recursive=True))]

    def cpu_s(self) -> float:
        """User and system CPU time used so far."""
        # The CPU clock of a process, as clock_getcpuclockid(3) computes its id: /proc only has units of 10 ms.
        return sum(time.clock_gettime((~process.pid << 3) | 2) for process in self._processes)

    def memory_bytes(self) -> int:
        """Resident memory: each process's private memory, and the largest shared part once (mostly the same libraries).

        The proportional set size would be more exact, but the kernel needs 14 ms to compute it for half a gigabyte.
        """
        infos = [process.memory_info() for process in self._processes]
        return int(sum(info.rss - info.shared for info in infos) + max(info.shared for info in infos))


class PeakMemory:
    """Peak memory of a process tree, sampled every 20 ms; a context manager."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peak_bytes = 0

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self.peak_bytes = max(self.peak_bytes, self._tree.memory_bytes())


def _is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"{lines[-1] if lines else 'empty log'} (full log: {log})"
