"""A call over RabbitMQ and a worker to a model server is one trace."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from amqp_worker import (
    QUEUE,
    WorkerProcess,
    answering_server,
    exchange,
    make_message,
    predict_request,
)
from otlp_receiver import OtlpReceiver, otlp_receiver
from rabbitmq import RabbitMQ
from server_process import ServerProcess
from waiting import wait_until

SUBMIT = """
import sys
from savedmodel_bakery import tracing
from savedmodel_bakery import AmqpClient

tracing.configure()
with tracing.span("order", "INTERNAL", {}), AmqpClient(sys.argv[1], model="half_plus_two") as client:
    client.submit({"x": [2.0]}, result_queue="results")
"""
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


def test_a_submitted_call_is_produced_and_consumed_in_the_trace_of_its_caller(
    receiver: OtlpReceiver, broker: RabbitMQ, start: Callable[..., WorkerProcess]
) -> None:
    start("--result-queue", "results")
    subprocess.run([sys.executable, "-c", SUBMIT, broker.url()], timeout=60, check=True)
    order = receiver.wait_for("order", "INTERNAL")
    produced = receiver.wait_for(f"send {QUEUE}", "PRODUCER", parent=order)
    consumed = receiver.wait_for(f"process {QUEUE}", "CONSUMER", parent=produced)
    receiver.wait_for(PREDICT, "CLIENT", parent=consumed)


@pytest.mark.own_broker
def test_each_joined_message_has_a_span_in_its_own_trace(
    receiver: OtlpReceiver, broker: RabbitMQ, start: Callable[..., WorkerProcess]
) -> None:
    """The first message keeps the only call; the others are joined meanwhile, and the last has the joined call."""
    callers = [(bytes([number]) * 16, bytes([number]) * 8) for number in range(1, 5)]
    first, *others = [
        make_message(predict_request([1]), traceparent=f"00-{trace.hex()}-{span.hex()}-01") for trace, span in callers
    ]
    called, released = threading.Event(), threading.Event()

    def answer(_: bytes) -> bytes:
        called.set()
        released.wait(60)
        return b""

    with answering_server(answer) as target, ThreadPoolExecutor() as pool:
        start("--calls", "1", "--batch-size", "4", target=target)
        replies = [pool.submit(exchange, broker.url(), [first])]
        assert called.wait(60)
        replies.append(pool.submit(exchange, broker.url(), others))
        wait_until(lambda: "4" in broker.control("list_queues", "messages_unacknowledged").split())
        released.set()
        assert [1, 3] == [len(future.result(60)) for future in replies]

    def find(name: str) -> list[tuple[bytes, bytes]]:
        return [(span.trace_id, span.parent_id) for span in receiver.spans if name == span.name]

    consumed = f"process {QUEUE}"
    wait_until(lambda: (4, 2) == (len(find(consumed)), len(find(PREDICT))), describe=lambda: receiver.spans)
    assert callers == sorted(find(consumed))
    assert [callers[0][0], callers[-1][0]] == [trace for trace, _ in find(PREDICT)]
