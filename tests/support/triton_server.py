"""A real tritonserver in its own process, on free loopback ports; `make test-system` makes its environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import requests
import triton_calls
from server_process import free_port
from waiting import wait_until

from benchmarks import triton

ENVIRONMENT = Path(__file__).parent.parent.parent / ".cache" / "bench" / "triton"
START_TIMEOUT_S = 300  # each model imports TensorFlow in a process of its own
STOP_TIMEOUT_S = 60

Arrays = dict[str, np.ndarray]


class TritonServer:
    """Runs tritonserver until the end of the `with` block.

    Args:
        repository: folder of models.
        folder: empty, for its backends and its log.
    """

    def __init__(self, repository: Path, folder: Path) -> None:
        self.http_port, self.grpc_port, metrics_port = free_port(), free_port(), free_port()
        self.log = folder / "log"
        ports = (self.http_port, self.grpc_port, metrics_port)
        command = triton.command(ENVIRONMENT, repository, folder / "backends", ports=ports)
        command += ["--disable-auto-complete-config"]  # for which it would start each model once more
        variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **triton.variables(ENVIRONMENT)}
        with self.log.open("w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=variables)
        try:
            wait_until(lambda: self.is_ready() or self.process.poll() is not None, timeout_s=START_TIMEOUT_S)
            assert self.process.poll() is None, f"it exited with {self.process.returncode}"
        except AssertionError as error:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"tritonserver does not start: {error}\n{self.log.read_text()}") from None

    def is_ready(self) -> bool:
        """Return whether all models are loaded and warm."""
        try:
            return requests.get(f"http://127.0.0.1:{self.http_port}/v2/health/ready", timeout=5).ok
        except requests.ConnectionError:
            return False

    def statistics(self, model: str) -> Mapping[str, Any]:
        """Return Triton's counts of a model since its start."""
        answer = requests.get(f"http://127.0.0.1:{self.http_port}/v2/models/{model}/stats", timeout=10)
        (statistics,) = answer.json()["model_stats"]
        return statistics

    def infer(
        self, protocol: str, model: str, calls: Sequence[Arrays], outputs: Sequence[str] = ()
    ) -> list[Arrays | str]:
        """Send requests at the same time with the official client, which has an environment of its own.

        Args:
            protocol: `http` or `grpc`.
            model: to call.
            calls: inputs by name.
            outputs: to request; all if empty.

        Returns:
            For each call the outputs by name, or the message of its error.
        """
        port = {"http": self.http_port, "grpc": self.grpc_port}[protocol]
        job = {
            "protocol": protocol,
            "target": f"127.0.0.1:{port}",
            "model": model,
            "outputs": list(outputs),
            "calls": [{name: triton_calls.to_json(array) for name, array in call.items()} for call in calls],
        }
        script = [str(ENVIRONMENT / "bin" / "python"), triton_calls.__file__]
        run = subprocess.run(script, input=json.dumps(job), capture_output=True, text=True, timeout=120, check=False)
        assert 0 == run.returncode, run.stderr
        return [
            answer
            if isinstance(answer, str)
            else {name: triton_calls.from_json(array) for name, array in answer.items()}
            for answer in json.loads(run.stdout)
        ]

    def stop(self) -> None:
        """Send SIGTERM and wait for the end; fail with the log if it doesn't come."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"tritonserver did not stop:\n{self.log.read_text()}") from None

    def __enter__(self) -> TritonServer:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
