"""A call over RabbitMQ and a worker to a model server is one trace."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from amqp_worker import QUEUE, WorkerProcess
from otlp_receiver import OtlpReceiver, otlp_receiver
from rabbitmq import RabbitMQ
from server_process import ServerProcess
from waiting import wait_until

PREDICT = "tensorflow.serving.PredictionService/Predict"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    """An OTLP receiver; processes that start from now on export to it."""
    with otlp_receiver() as running:
        for name, value in running.variables.items():
            monkeypatch.setenv(name, value)
        yield running


def test_a_call_is_one_trace(
    receiver: OtlpReceiver,
    half_plus_two: Path,
    broker: RabbitMQ,
    start: Callable[..., WorkerProcess],
    tmp_path: Path,
) -> None:
    flags = ("--model_name=half_plus_two", f"--model_base_path={half_plus_two}")
    np.save(tmp_path / "x.npy", np.float32([2]))
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        start(target=server.target)
        options = ["-m", "half_plus_two", "--format", "AMQP", "--target", broker.url()]
        command = [sys.executable, "-m", "savedmodel_bakery", "predict", "--input", f"x={tmp_path / 'x.npy'}", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert 0 == done.returncode, done.stderr
        span = receiver.wait_for(PREDICT, "SERVER")

        def find_parents() -> list[str]:
            by_id = {one.span_id: one for one in receiver.spans}
            parents, current = [], span
            while current := by_id.get(current.parent_id):
                parents.append(f"{current.kind} {current.name}")
                assert span.trace_id == current.trace_id
            return parents

        expected = [f"CLIENT {PREDICT}", f"CONSUMER process {QUEUE}", f"CLIENT send {QUEUE}"]
        wait_until(lambda: expected == find_parents(), describe=find_parents)
