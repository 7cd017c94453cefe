"""Ten version switches under load fail no call."""

from __future__ import annotations

import shutil
from pathlib import Path

import grpc
import model_makers
import numpy as np
import pytest
import requests
from amqp_worker import WorkerProcess
from model_servers import version_states
from rabbitmq import RabbitMQ
from server_process import ServerProcess
from steady_callers import PredictCallers
from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc
from waiting import wait_until

from savedmodel_bakery import AmqpClient

MODEL = "halves"
V2_REQUEST = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [0.0]}]}


@pytest.mark.timeout(180)
def test_on_grpc_rest_v2_and_amqp(tmp_path: Path) -> None:
    """The folder of each version is removed when the next one is served."""
    base_path = tmp_path / MODEL
    model_makers.half_plus(base_path, 1, plus=1.0)
    flags = (f"--model_name={MODEL}", f"--model_base_path={base_path}")
    with (
        ServerProcess(*flags, log=tmp_path / "log") as server,
        RabbitMQ(tmp_path / "rabbitmq") as broker,
        WorkerProcess(broker.url(), "--server", server.target, "--model-name", MODEL, log=tmp_path / "worker.log"),
        AmqpClient(broker.url(), model=MODEL, timeout_s=10) as client,
        requests.Session() as session,
    ):

        def call_v2() -> float:
            response = session.post(f"{server.url}/v2/models/{MODEL}/infer", json=V2_REQUEST, timeout=10)
            response.raise_for_status()
            return float(response.json()["outputs"][0]["data"][0])

        def call_amqp() -> float:
            return float(client.predict({"x": np.float32([0])}).arrays["y"][0])

        others = {"v2": call_v2, "AMQP": call_amqp}
        with PredictCallers(server, MODEL, right=range(1, 12), others=others, interval_s=0) as callers:
            callers.wait_for_answer(1)
            for number in range(2, 12):
                model_makers.half_plus(base_path, number, plus=float(number))
                scan_now(server, base_path)
                wait_until(lambda number=number: is_served(server, number))
                callers.wait_for_answer(number)
                shutil.rmtree(base_path / str(number - 1))
        callers.assert_served()
        print(f"answers: {dict(callers.answered)}, longest time without one: {dict(callers.longest_gap_s)}")


def scan_now(server: ServerProcess, base_path: Path) -> None:
    """Make the server scan for versions, by reloading the same configuration."""
    message = model_management_pb2.ReloadConfigRequest()
    message.config.model_config_list.config.add(name=MODEL, base_path=str(base_path), model_platform="tensorflow")
    with grpc.insecure_channel(server.target) as channel:
        model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest(message, timeout=60)


def is_served(server: ServerProcess, number: int) -> bool:
    """Return whether a version is available and the one before it was unloaded."""
    states = version_states(server, MODEL)
    return ("AVAILABLE", "OK") == states.get(number) and states[number - 1][0] == "END"
