"""Processes that are measured: started on loopback ports, watched with all their descendants, ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

START_LIMIT_S = 180
STOP_LIMIT_S = 10
SAMPLE_S = 0.02


class DidNotStart(Exception):  # noqa: N818 - the name says what happened
    """A server ended, or doesn't listen; the text says what its log does."""


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server in a process group of its own; a context manager that ends it.

    Args:
        command: what to run.
        port: of the loopback address, on which it listens when it is ready.
        log: file for stdout and stderr.
        environment: beside this process's own.
    """

    def __init__(
        self, command: Sequence[str], *, port: int, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        self._port = port
        with log.open("w") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        return self._process.pid

    def wait_until_listening(self) -> None:
        """Return when it takes connections.

        Raises:
            DidNotStart: it ended, or takes too long.
        """
        end_s = time.monotonic() + START_LIMIT_S
        while not _is_listening(self._port):
            if self._process.poll() is not None or time.monotonic() > end_s:
                raise DidNotStart(_last_line(self._log))
            time.sleep(0.05)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and what it started."""
        self._process.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_LIMIT_S)
        finally:
            with suppress(ProcessLookupError):  # where nothing stayed behind
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Tree:
    """Processes with all their descendants, as they are now."""

    def __init__(self, pids: Sequence[int]) -> None:
        roots = [psutil.Process(pid) for pid in pids]
        self._processes = [process for root in roots for process in (root, *root.children(recursive=True))]

    def cpu_s(self) -> float:
        """CPU time that they have used, of user and system."""
        times = [process.cpu_times() for process in self._processes]
        return float(sum(one.user + one.system for one in times))

    def memory_bytes(self) -> int:
        """Memory that they take: of each what is its own, and once what they map from files, mostly the same libraries.

        The proportional set size would be finer, and takes the kernel 14 ms for each look at half a gigabyte.
        """
        found = [process.memory_info() for process in self._processes]
        return int(sum(one.rss - one.shared for one in found) + max(one.shared for one in found))


class PeakMemory:
    """The most memory of a tree while the block runs, looked at every 20 ms; a context manager."""

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
    return f"{lines[-1] if lines else 'no word'} (all of it is in {log})"
