"""A server under a memory limit, and honest callers who use it while it is attacked."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import grpc_calls
import numpy as np
import requests
from grpc_health.v1 import health_pb2, health_pb2_grpc
from server_process import ServerProcess
from steady_callers import SteadyCallers
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)
from waiting import wait_until

MB = 1_000_000
MEMORY_LIMIT_BYTES = 4000 * MB
MEMORY_BUDGET_BYTES = 1200 * MB
TINY = "half_plus_two"
METRICS_PATH = "/monitoring/prometheus/metrics"
CLASSIFIER = "efficientnet_lite0"
HEALTH_LIMIT_S = 8.0  # on two cores that four attacks may share; alone the slowest call takes 0.6 s
"""Within which health, status and metadata must answer, whatever the server does."""
PREDICT_LIMIT_S = 10.0
KEPT_MB = 700
"""What may stay after an attack: the C library keeps some memory for each thread."""
RETURN_LIMIT_S = 10.0


class AttackedServer(ServerProcess):
    """A server that ends if it needs too much memory.

    The limit is RLIMIT_DATA: the private memory of the process, mapped but not necessarily used. It needs no
    privileges and works in every container. A server that exceeds it gets no more memory, which ends it. (RLIMIT_AS
    would count TensorFlow's large reservations too, and control groups can't be made without privileges.)

    Args:
        base_paths: of the models, by name.
        flags: additional flags.
        log: file for stdout and stderr.
        open_files: the system's limit of open files; None to inherit it.
    """

    def __init__(self, base_paths: dict[str, Path], *flags: str, log: Path, open_files: int | None = None) -> None:
        config = log.with_suffix(".config")
        config.write_text(model_config(base_paths))
        own = (f"--model_config_file={config}", "--enable_grpc_healthcheck_service")
        super().__init__(*own, f"--memory_budget_bytes={MEMORY_BUDGET_BYTES}", *flags, log=log, wait=False)
        resource.prlimit(self.process.pid, resource.RLIMIT_DATA, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
        if open_files:
            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (open_files, open_files))
        self.wait_until_listening()

    @contextmanager
    def growing_at_most(self, peak_mb: float, *, kept_mb: float = KEPT_MB) -> Iterator[None]:
        """Fail if the `with` block raises the memory of the process by more than `peak_mb`, or `kept_mb` after it.

        See proc_pid_clear_refs(5) on how to reset the peak.
        """
        self._proc("clear_refs").write_text("5")
        before_mb = self._status_mb("VmRSS")
        yield
        grown_mb = self._status_mb("VmHWM") - before_mb
        print(f"from {before_mb:.0f} MB by {grown_mb:.0f} MB")
        assert grown_mb < peak_mb, f"the server grew by {grown_mb:.0f} MB"
        wait_until(
            lambda: self._status_mb("VmRSS") - before_mb < kept_mb,
            timeout_s=RETURN_LIMIT_S,
            describe=lambda: f"the server keeps {self._status_mb('VmRSS') - before_mb:.0f} MB",
        )

    def is_idle(self) -> bool:
        """Return whether the process uses less than a tenth of a CPU, measured for 0.3 s."""
        started = self._cpu_time_s()
        time.sleep(0.3)
        return self._cpu_time_s() - started < 0.03

    def _status_mb(self, name: str) -> float:
        lines = self._proc("status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 / MB for line in lines if line.startswith(f"{name}:"))

    def _proc(self, name: str) -> Path:
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log.read_text()[-2000:]}")
        return Path("/proc", str(self.process.pid), name)


def model_config(base_paths: dict[str, Path]) -> str:
    """Return a text ModelServerConfig with these models."""
    entries = (
        f'config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }}'
        for name, path in base_paths.items()
    )
    return f"model_config_list {{ {' '.join(entries)} }}"


class HonestCallers(SteadyCallers):
    """Call health, status, metadata and, if `predict`, Predict of a server; `limit_s` is for each call."""

    def __init__(self, server: ServerProcess, *, predict: bool = True, limit_s: float = HEALTH_LIMIT_S) -> None:
        self._server, self._limit_s, self._predict_limit_s = server, limit_s, max(limit_s, PREDICT_LIMIT_S)
        self._channel = grpc.insecure_channel(server.target, options=[("grpc.use_local_subchannel_pool", 1)])
        super().__init__(self._health() | (self._predict() if predict else {}))

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._channel.close()

    def _health(self) -> dict[str, Callable[[], bool]]:
        health = health_pb2_grpc.HealthStub(self._channel)
        models = model_service_pb2_grpc.ModelServiceStub(self._channel)
        prediction = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        status, metadata = (
            get_model_status_pb2.GetModelStatusRequest(),
            get_model_metadata_pb2.GetModelMetadataRequest(),
        )
        status.model_spec.name = metadata.model_spec.name = TINY
        metadata.metadata_field.append("signature_def")
        serving = health_pb2.HealthCheckResponse.SERVING
        url = self._server.url
        return {
            "gRPC health": lambda: (
                serving == health.Check(health_pb2.HealthCheckRequest(), timeout=self._limit_s).status
            ),
            "gRPC status": lambda: (
                1 == models.GetModelStatus(status, timeout=self._limit_s).model_version_status[0].version
            ),
            "gRPC metadata": lambda: (
                "signature_def" in prediction.GetModelMetadata(metadata, timeout=self._limit_s).metadata
            ),
            "REST health": lambda: 200 == requests.get(f"{url}/v2/health/live", timeout=self._limit_s).status_code,
            "REST status": lambda: 200 == requests.get(f"{url}/v1/models/{TINY}", timeout=self._limit_s).status_code,
        }

    def _predict(self) -> dict[str, Callable[[], bool]]:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        request = grpc_calls.request(x=np.float32([4]))
        url = f"{self._server.url}/v1/models/{TINY}:predict"
        return {
            "gRPC Predict": lambda: (
                [4.0] == list(stub.Predict(request, timeout=self._predict_limit_s).outputs["y"].float_val)
            ),
            "REST predict": lambda: (
                {"predictions": [4.0]}
                == requests.post(url, json={"instances": [4]}, timeout=self._predict_limit_s).json()
            ),
        }
