"""A real server in a process of its own, on free loopback ports, ended by pid."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import requests

START_LIMIT_S = 90


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """`python -m serving`, from start to end.

    Args:
        flags: beyond ports and address.
        log: file for stdout and stderr.
        wait: whether to return only when both ports take connections.
    """

    def __init__(self, *flags: str, log: Path, wait: bool = True) -> None:
        self.port, self.rest_api_port = free_port(), free_port()
        self.log = log
        ports = (f"--port={self.port}", f"--rest_api_port={self.rest_api_port}", "--bind_address=127.0.0.1")
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "savedmodel_bakery.serving", "--engine=embedded", *ports, *flags],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        if wait:
            self.wait_until_listening()

    @property
    def target(self) -> str:
        """Where gRPC listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Where REST listens."""
        return f"http://127.0.0.1:{self.rest_api_port}"

    def is_listening(self) -> bool:
        """Whether REST, which opens last, takes connections."""
        try:
            socket.create_connection(("127.0.0.1", self.rest_api_port), 1).close()
        except OSError:
            return False
        return True

    def wait_until_listening(self) -> None:
        """Return when the server answers; its end, or a long silence, is an error with its log."""
        end = time.monotonic() + START_LIMIT_S
        while not self.is_listening():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise AssertionError(f"the server did not come up:\n{self.log.read_text()}")
            time.sleep(0.05)

    def wait_for_log(self, text: str) -> None:
        """Return when the log has `text`; a long silence is an error with the log."""
        end = time.monotonic() + START_LIMIT_S
        while text not in self.log.read_text():
            assert time.monotonic() < end, f"{text!r} is not in the log:\n{self.log.read_text()}"
            time.sleep(0.1)

    def slow_steps(self, model: str, at_least_s: float) -> int:
        """A number that the signature `slow` of a model made by `model_makers.half_plus` takes so long to count to."""
        steps, took_s = 1000, 0.0
        while took_s < at_least_s:
            steps *= 2
            started = time.monotonic()
            body = {"signature_name": "slow", "inputs": steps}
            requests.post(f"{self.url}/v1/models/{model}:predict", json=body, timeout=60).raise_for_status()
            took_s = time.monotonic() - started
        return steps

    def stop(self, limit_s: float = 40) -> int:
        """Send SIGTERM and return the exit status."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
