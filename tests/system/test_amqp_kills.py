"""Nothing is lost: two workers are killed time and again, and every caller has exactly one right answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import model_makers
import numpy as np
import pytest
from amqp_worker import WorkerProcess, status
from rabbitmq import RabbitMQ

from savedmodel_bakery.client import AmqpClient

REQUESTS, CALLERS, KILLS = 10_000, 16, 10


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as running:
        yield running


class Callers:
    """As many as there are connections, which ask one question after the other, no two the same.

    Attributes:
        answers: by question, all that came; written by the caller who asked it.
    """

    def __init__(self, url: str) -> None:
        self.answers: list[list[float]] = [[] for _ in range(REQUESTS)]
        self._url = url
        self._answered = 0
        self._changed = threading.Condition()

    def run(self) -> None:
        with ThreadPoolExecutor(CALLERS) as pool:
            for done in [pool.submit(self._ask, first) for first in range(CALLERS)]:
                done.result()

    def wait_for(self, count: int) -> None:
        """Return when so many questions are answered."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._answered >= count, timeout=120), f"{self._answered} answers"

    def _ask(self, first: int) -> None:
        with AmqpClient(self._url, model="half_plus_two", timeout_s=120) as client:
            for number in range(first, REQUESTS, CALLERS):
                found = client.predict({"x": np.float32([number])}).arrays["y"]
                self.answers[number].extend(found.tolist())
                with self._changed:
                    self._answered += 1
                    self._changed.notify_all()


@pytest.mark.timeout(600)
def test_every_caller_has_exactly_one_right_answer(broker: RabbitMQ, tmp_path: Path) -> None:
    model_makers.half_plus(tmp_path / "half_plus_two", 1)
    model = ("--model_name", "half_plus_two", "--model_base_path", str(tmp_path / "half_plus_two"))

    def start(number: int) -> WorkerProcess:
        return WorkerProcess(broker.url(), *model, log=tmp_path / f"worker{number}.log", wait=False)

    workers = [start(0), start(1)]
    for worker in workers:
        worker.wait_for_log("Consuming queue")
    callers = Callers(broker.url())
    asking = threading.Thread(target=callers.run)
    asking.start()
    for kill in range(KILLS):
        callers.wait_for((kill + 1) * REQUESTS // (KILLS + 1))
        workers[kill % 2].kill()
        workers[kill % 2] = start(2 + kill)
    asking.join(300)
    assert [[number / 2 + 2] for number in range(REQUESTS)] == callers.answers
    for worker in workers:
        worker.wait_for_log("Consuming queue")
        assert 0 == worker.stop()
    logs = "".join(log.read_text() for log in tmp_path.glob("*.log"))
    assert KILLS <= logs.count("a message is delivered again")  # those who were killed had their hands full
    # With the workers gone, what they had in hand would be ready again.
    assert {"ready": 0, "consumers": 0, "dead": 0}.items() <= status(broker.url()).items()
