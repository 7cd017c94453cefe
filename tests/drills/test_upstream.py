"""A server answers too slowly, wrongly or partly: callers get errors in time; workers and jobs lose nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from amqp_worker import WorkerProcess
from bulk_files import read_image_labels, write_photos
from faulty_proxy import FAULTS, FaultyProxy
from rabbitmq import RabbitMQ
from server_process import ServerProcess
from waiting import wait_until

from savedmodel_bakery import AmqpClient, Client, ClientError, DeadlineExceededError

TIMEOUT_S = 2.0
PHOTOS = 4000
MODEL = "half_plus_two"


@pytest.fixture(scope="module")
def server(half_plus_two: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of half_plus_two."""
    flags = (f"--model_name={MODEL}", f"--model_base_path={half_plus_two}")
    with ServerProcess(*flags, log=tmp_path_factory.mktemp("upstream") / "log") as running:
        yield running


@pytest.mark.parametrize("transport", ["grpc", "rest", "v2", "v2-grpc"])
def test_callers(server: ServerProcess, transport: str) -> None:
    """Each call ends with an error within its time limit, and with the answer when the server is itself again.

    Over HTTP, the limit is one of each wait for bytes, so a slow answer, or the error, may come later.
    """
    is_grpc = transport.endswith("grpc")
    inputs = {"x": np.float32([2])}
    with (
        FaultyProxy(server.port if is_grpc else server.rest_api_port) as proxy,
        Client(
            transport=transport, port=proxy.port, rest_api_port=proxy.port, model=MODEL, timeout_s=TIMEOUT_S
        ) as client,
    ):
        assert [3.0] == client.predict(inputs).arrays["y"].tolist()
        for fault in FAULTS:
            proxy.set_fault(fault)
            started_s = time.monotonic()
            if fault == "slow" and not is_grpc:
                outcome = "an answer"
                try:
                    assert [3.0] == client.predict(inputs).arrays["y"].tolist()
                except DeadlineExceededError as error:
                    outcome = str(error)
                print(f"{transport}, {fault}: after {time.monotonic() - started_s:.1f} s, {outcome}")
                proxy.set_fault("")
                continue
            with pytest.raises(ClientError) as raised:
                client.predict(inputs)
            took_s = time.monotonic() - started_s
            print(f"{transport}, {fault}: after {took_s:.1f} s, {raised.value}")
            assert took_s < TIMEOUT_S + 2  # gRPC's client looks for a second why there was no answer
            assert "\n" not in str(raised.value)
            proxy.set_fault("")
            assert [3.0] == client.predict(inputs).arrays["y"].tolist()
        proxy.pause_s = 0.02  # slow, but within the time limit
        proxy.set_fault("slow")
        assert [3.0] == client.predict(inputs).arrays["y"].tolist()


@pytest.mark.timeout(180)
def test_messages(server: ServerProcess, tmp_path: Path) -> None:
    """Each message is answered, and correctly unless it met the time limit, though the server has faults meanwhile."""
    sent: dict[str, float] = {}
    with (
        FaultyProxy(server.port) as proxy,
        RabbitMQ(tmp_path / "rabbitmq") as broker,
        WorkerProcess(
            broker.url(), "--server", f"127.0.0.1:{proxy.port}", "--model-name", MODEL,
            "--timeout-seconds", str(TIMEOUT_S), "--retry-attempts", "20", log=tmp_path / "worker.log",
        ),
        AmqpClient(broker.url(), model=MODEL, timeout_s=60) as client,
    ):  # fmt: skip
        for fault in ("", *FAULTS, ""):
            proxy.set_fault(fault)
            for _ in range(10):
                value = float(len(sent))
                sent[client.submit({"x": np.float32([value])}, result_queue="results")] = value / 2 + 2
            time.sleep(TIMEOUT_S)
        started_s = time.monotonic()
        received: dict[str, float | None] = {}
        for key, result in client.results("results", idle_s=60):
            # The answer to a caller whose call took longer than --timeout-seconds.
            assert not isinstance(result, ClientError) or isinstance(result, DeadlineExceededError), result
            received[key] = None if isinstance(result, ClientError) else result.arrays["y"].tolist()[0]
            if len(received) == len(sent):
                break
        print(f"all answered {time.monotonic() - started_s:.1f} s after the last fault")
        late = {key for key, value in received.items() if value is None}
        print(f"{len(late)} of {len(sent)} answers are DEADLINE_EXCEEDED")
        assert len(late) <= 20  # those that were sent while answers were swallowed, or slow
        assert sent == received | {key: sent[key] for key in late}


def test_bulk_job(sizing_server: ServerProcess, tmp_path: Path) -> None:
    """It waits, and then each photo has one row, with its label."""
    contents = {f"p{size}": b"x" * size for size in range(1, PHOTOS + 1)}
    photos = write_photos(tmp_path / "photos", **contents)
    with FaultyProxy(sizing_server.port) as proxy:
        command = [sys.executable, "-m", "savedmodel_bakery", "bulk", str(photos), "-m", "sizing"]
        options = [
            "--port",
            str(proxy.port),
            "--timeout-seconds",
            str(TIMEOUT_S),
            "--out",
            str(tmp_path / "rows.jsonl"),
        ]
        with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as job:
            wait_until(lambda: any(path.stat().st_size for path in tmp_path.glob("*rows.jsonl*")))
            for fault in (*FAULTS, ""):
                proxy.set_fault(fault)
                time.sleep(TIMEOUT_S)
            _, stderr = job.communicate(timeout=60)
    print(stderr.splitlines()[-1])
    assert 0 == job.returncode, stderr
    assert "Traceback" not in stderr
    assert sorted((f"{photos}/{key}.jpg", str(len(content))) for key, content in contents.items()) == sorted(
        read_image_labels(str(tmp_path / "rows.jsonl"))
    )
