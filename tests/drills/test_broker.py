"""The broker is restarted, or its disk is nearly full: what it has accepted is answered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from amqp_worker import WorkerProcess
from rabbitmq import RabbitMQ
from waiting import wait_until

from savedmodel_bakery import AmqpClient, ClientError, DeadlineExceededError

MODEL = "half_plus_two"
RESULTS = "results"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RabbitMQ]:
    """A broker."""
    with RabbitMQ(tmp_path / "rabbitmq") as running:
        yield running


@pytest.fixture
def worker(broker: RabbitMQ, half_plus_two: Path, tmp_path: Path) -> Iterator[WorkerProcess]:
    """A worker with half_plus_two."""
    options = ("--model-base-path", str(half_plus_two))
    with WorkerProcess(broker.url(), *options, log=tmp_path / "worker.log") as running:
        yield running


def submit(client: AmqpClient, count: int, sent: dict[str, float]) -> None:
    """Submit messages, and note the right answer to each."""
    for _ in range(count):
        value = float(len(sent))
        sent[client.submit({"x": np.float32([value])}, result_queue=RESULTS)] = value / 2 + 2


def receive(client: AmqpClient, count: int) -> dict[str, float]:
    """Return the answers by message."""
    received: dict[str, float] = {}
    for key, result in client.results(RESULTS, idle_s=60):
        assert not isinstance(result, ClientError), result
        received[key] = result.arrays["y"].tolist()[0]
        if len(received) == count:
            break
    return received


@pytest.mark.timeout(180)
def test_it_is_restarted(broker: RabbitMQ, worker: WorkerProcess) -> None:
    """While messages wait, run and have been answered."""
    sent: dict[str, float] = {}
    with AmqpClient(broker.url(), model=MODEL, timeout_s=60) as client:
        submit(client, 300, sent)
        broker.stop()
    started_s = time.monotonic()
    broker.start()
    print(f"the broker took {time.monotonic() - started_s:.1f} s to start")
    started_s = time.monotonic()
    with AmqpClient(broker.url(), model=MODEL, timeout_s=60) as client:
        submit(client, 10, sent)
        assert sent == receive(client, len(sent))
    print(f"all answered {time.monotonic() - started_s:.1f} s after its start")
    assert worker.process.poll() is None


@pytest.mark.timeout(180)
def test_its_disk_alarm(broker: RabbitMQ, worker: WorkerProcess) -> None:
    """Callers get DEADLINE_EXCEEDED while RabbitMQ reads from no connection that publishes."""
    sent: dict[str, float] = {}
    with AmqpClient(broker.url(), model=MODEL, timeout_s=60) as client:
        submit(client, 100, sent)
        broker.control("set_disk_free_limit", "100000GB")
        wait_until(lambda: "block" in broker.control("list_connections", "state"))
        with (
            AmqpClient(broker.url(), model=MODEL, timeout_s=3) as other,
            pytest.raises(DeadlineExceededError) as raised,
        ):
            other.predict({"x": np.float32([0])})
        print(raised.value)
        broker.control("set_disk_free_limit", "50MB")
        started_s = time.monotonic()
        submit(client, 10, sent)
        assert sent == receive(client, len(sent))
        print(f"all answered {time.monotonic() - started_s:.1f} s after its end")
    assert 1 == worker.log.read_text().count("Consuming queue")
