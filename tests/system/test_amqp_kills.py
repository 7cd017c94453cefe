"""No message is lost: two workers are killed again and again, and every caller gets exactly one correct reply."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import model_makers
import numpy as np
import pytest
from amqp_worker import WorkerProcess, status
from rabbitmq import RabbitMQ

from savedmodel_bakery import AmqpClient

REQUESTS, CALLERS, KILLS = 2_500, 16, 4


class Callers:
    """Clients with a connection each, which send one request after the other; all requests differ.

    Attributes:
        outputs: the outputs received, by request; each list is written by one client.
    """

    def __init__(self, url: str) -> None:
        self.outputs: list[list[float]] = [[] for _ in range(REQUESTS)]
        self._url = url
        self._reply_count = 0
        self._changed = threading.Condition()

    def run(self) -> None:
        with ThreadPoolExecutor(CALLERS) as pool:
            for future in [pool.submit(self._send, first) for first in range(CALLERS)]:
                future.result()

    def wait_for(self, count: int) -> None:
        """Return when this many requests have been answered."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._reply_count >= count, timeout=120), (
                f"{self._reply_count} replies"
            )

    def _send(self, first: int) -> None:
        with AmqpClient(self._url, model="half_plus_two", timeout_s=120) as client:
            for number in range(first, REQUESTS, CALLERS):
                outputs = client.predict({"x": np.float32([number])}).arrays["y"]
                self.outputs[number].extend(outputs.tolist())
                with self._changed:
                    self._reply_count += 1
                    self._changed.notify_all()


@pytest.mark.timeout(600)
def test_every_caller_gets_exactly_one_correct_reply(broker: RabbitMQ, tmp_path: Path) -> None:
    model_makers.half_plus(tmp_path / "half_plus_two", 1)
    model = ("--model-name", "half_plus_two", "--model-base-path", str(tmp_path / "half_plus_two"))

    def start(number: int) -> WorkerProcess:
        return WorkerProcess(broker.url(), *model, log=tmp_path / f"worker{number}.log", wait=False)

    workers = [start(0), start(1)]
    for worker in workers:
        worker.wait_for_log("Consuming queue")
    callers = Callers(broker.url())
    sending = threading.Thread(target=callers.run)
    sending.start()
    for kill in range(KILLS):
        callers.wait_for((kill + 1) * REQUESTS // (KILLS + 1))
        workers[kill % 2].kill()
        workers[kill % 2] = start(2 + kill)
    sending.join(300)
    assert [[number / 2 + 2] for number in range(REQUESTS)] == callers.outputs
    for worker in workers:
        worker.wait_for_log("Consuming queue")
        assert 0 == worker.stop()
    logs = "".join(log.read_text() for log in tmp_path.glob("*.log"))
    assert KILLS <= logs.count("a message is delivered again")  # each killed worker held a message
    # Now that the workers have stopped, any unacknowledged message would be ready again.
    assert {"ready": 0, "consumers": 0, "dead": 0}.items() <= status(broker.url()).items()
