"""A real MLServer, a server of the v2 protocol, on free loopback ports."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

import requests
import v2_environments
from server_process import free_port
from waiting import wait_until

MODELS = Path(__file__).parent / "mlserver_models" / "models.py"


def _tensors(**datatypes: str) -> list[dict[str, Any]]:
    return [{"name": name, "datatype": datatype, "shape": [-1]} for name, datatype in datatypes.items()]


_SETTINGS: dict[str, dict[str, Any]] = {
    "add_sub": {
        "implementation": "models.AddSub",
        "parameters": {"version": "3"},
        "versions": ["3"],
        "platform": "numpy",
        "inputs": _tensors(a="FP32", b="FP32"),
        "outputs": _tensors(sum="FP32", difference="FP32"),
    },
    "echo": {"implementation": "models.Echo"},
}
"""Name of a model to its settings; the metadata of `echo` state neither version nor tensors, as is usual."""


class MLServer:
    """Runs MLServer with the models of `mlserver_models` until the end of the `with` block.

    Args:
        folder: created here, for the models and the log.
    """

    def __init__(self, folder: Path) -> None:
        self.port, self.grpc_port = free_port(), free_port()
        self.log = folder / "log"
        for name, settings in _SETTINGS.items():
            (folder / name).mkdir(parents=True)
            shutil.copy(MODELS, folder / name)
            (folder / name / "model-settings.json").write_text(json.dumps({"name": name, **settings}))
        settings = {
            "host": "127.0.0.1",
            "http_port": self.port,
            "grpc_port": self.grpc_port,
            "metrics_endpoint": None,
            "parallel_workers": 0,
        }
        (folder / "settings.json").write_text(json.dumps(settings))
        with self.log.open("w") as output:
            self._process = subprocess.Popen(
                [v2_environments.program(v2_environments.MLSERVER, "mlserver"), "start", str(folder)],
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=v2_environments.variables(),
            )
        try:
            wait_until(lambda: self._is_ready() or self._process.poll() is not None, timeout_s=300)
            assert self._process.poll() is None, f"it exited with {self._process.returncode}"
        except AssertionError as error:
            self._stop()
            raise AssertionError(f"MLServer does not start: {error}\n{self.log.read_text()}") from None

    def _is_ready(self) -> bool:
        try:
            return requests.get(f"http://127.0.0.1:{self.port}/v2/health/ready", timeout=5).ok
        except requests.RequestException:
            return False

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> MLServer:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()
