"""A real server in its own process, on free loopback ports."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import requests
import warm_start
from waiting import wait_until

START_TIMEOUT_S = 90


# Each process of pytest-xdist has ports of its own, below those that systems give to connections, so that nobody else
# takes a port between this choice and the start of a server.
_PORTS = 2000
_FIRST_PORT = 20_000 + _PORTS * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_OFFSET = 97 * os.getpid() % _PORTS  # two runs of the tests at the same time seldom choose the same ports
_candidates = itertools.cycle(_FIRST_PORT + (_OFFSET + number) % _PORTS for number in range(_PORTS))


def free_port() -> int:
    """Return a free TCP port of the loopback address, another one than the last times."""
    for port in itertools.islice(_candidates, _PORTS):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"none of the ports from {_FIRST_PORT} on is free")


class ServerProcess:
    """Runs `python -m serving` until the end of the `with` block.

    Args:
        flags: additional flags; ports and address are set already.
        log: file for stdout and stderr.
        wait: whether to wait until the server accepts connections.
        under: a command line to run it with, such as `prlimit --nproc=100`.
    """

    def __init__(self, *flags: str, log: Path, wait: bool = True, under: Sequence[str] = ()) -> None:
        self.port, self.rest_api_port = free_port(), free_port()
        self.log = log
        ports = (f"--port={self.port}", f"--rest_api_port={self.rest_api_port}", "--bind_address=127.0.0.1")
        command = [*under, sys.executable, "-m", "savedmodel_bakery.serving", "--engine=embedded", *ports, *flags]
        with log.open("w") as output:
            self.process = warm_start.start(
                command, output=output.fileno(), environment={**os.environ, "PYTHONFAULTHANDLER": "1"}
            )
        if wait:
            self.wait_until_listening()

    @property
    def target(self) -> str:
        """Address of the gRPC port."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Base URL of the REST port."""
        return f"http://127.0.0.1:{self.rest_api_port}"

    def is_listening(self) -> bool:
        """Return whether the REST port, which opens last, accepts connections."""
        try:
            socket.create_connection(("127.0.0.1", self.rest_api_port), 1).close()
        except OSError:
            return False
        return True

    def wait_until_listening(self) -> None:
        """Return when the server accepts connections; fail with its log if it exits or takes too long."""
        wait_until(lambda: self.is_listening() or self.process.poll() is not None, timeout_s=START_TIMEOUT_S)
        if self.process.poll() is not None:
            raise AssertionError(f"the server exited with {self.process.returncode}:\n{self.log.read_text()}")

    def wait_for_log(self, text: str) -> None:
        """Return when the log contains `text`; fail with the log if that takes too long."""
        wait_until(
            lambda: text in self.log.read_text(),
            timeout_s=START_TIMEOUT_S,
            describe=lambda: f"{text!r} is not in the log:\n{self.log.read_text()}",
        )

    def wait_until_busy(self) -> None:
        """Return when the process has used 0.2 s of CPU time since the call."""
        started = self._cpu_time_s()
        wait_until(lambda: self._cpu_time_s() - started > 0.2)

    def wait_until_idle(self) -> None:
        """Return when the process uses less than a tenth of a CPU."""

        def is_idle() -> bool:
            started = self._cpu_time_s()
            time.sleep(0.5)
            return self._cpu_time_s() - started < 0.05

        wait_until(is_idle)

    def _cpu_time_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def slow_steps(self, model: str, minimum_s: float) -> int:
        """Return a count for which the signature `slow` of a `model_makers.half_plus` model takes at least so long.

        In CPU time, because a machine that is busy now may be idle later.
        """
        steps, took_s = 1000, 0.0
        while took_s < minimum_s:
            steps *= 2
            started = self._cpu_time_s()
            body = {"signature_name": "slow", "inputs": steps}
            requests.post(f"{self.url}/v1/models/{model}:predict", json=body, timeout=60).raise_for_status()
            took_s = self._cpu_time_s() - started
        return steps

    def stop(self, timeout_s: float = 40) -> int:
        """Send SIGTERM and return the exit status; fail with the log and all stacks if it doesn't exit."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.kill(self.process.pid, signal.SIGABRT)  # faulthandler writes the stacks to the log
            self.process.wait()
            raise AssertionError(f"the server did not stop in {timeout_s} s:\n{self.log.read_text()}") from None

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
