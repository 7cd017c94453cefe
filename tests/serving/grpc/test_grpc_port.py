"""The gRPC port: TLS, Unix sockets, channel arguments, health, and clients that cancel."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import grpc
import http2
import model_makers
import numpy as np
import pytest
import requests
import tensorflow as tf
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc
from server_process import ServerProcess
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
from waiting import wait_until

CONFIG = """
model_config_list {{
  config {{ name: "half_plus_two" base_path: "{root}/half_plus_two" model_platform: "tensorflow" }}
  config {{ name: "counting" base_path: "{root}/counting" model_platform: "tensorflow" }}
}}
"""
MAX_MESSAGE_BYTES = 10_000


class Secured(NamedTuple):
    """A server with TLS, and the credentials to reach it."""

    server: ServerProcess
    socket: Path
    authority: bytes
    client_key: bytes
    client_certificate: bytes

    def channel(
        self,
        target: str,
        *,
        with_certificate: bool = True,
        compression: grpc.Compression = grpc.Compression.NoCompression,
    ) -> grpc.Channel:
        pair = (self.client_key, self.client_certificate) if with_certificate else (None, None)
        credentials = grpc.ssl_channel_credentials(self.authority, *pair)
        options = [("grpc.ssl_target_name_override", "localhost"), ("grpc.enable_retries", 0)]
        return grpc.secure_channel(target, credentials, options, compression)


def ssl_config(**fields: object) -> str:
    return "\n".join(f"{name}: {json.dumps(value)}" for name, value in fields.items())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A server with mutual TLS on a TCP port and a socket, one thread per port, a message limit, and health."""
    root = tmp_path_factory.mktemp("secured")
    model_makers.half_plus(root / "half_plus_two", 1)
    model_makers.counting(root / "counting")
    authority, clients = trustme.CA(), trustme.CA()
    server, client = authority.issue_cert("localhost"), clients.issue_cert("client")
    ssl_file, config = root / "ssl", root / "models.config"
    ssl_file.write_text(
        ssl_config(
            server_key=server.private_key_pem.bytes().decode(),
            server_cert=server.cert_chain_pems[0].bytes().decode(),
            custom_ca=clients.cert_pem.bytes().decode(),
            client_verify=True,
        )
    )
    config.write_text(CONFIG.format(root=root))
    flags = (
        f"--model_config_file={config}",
        f"--ssl_config_file={ssl_file}",
        "--allow_plaintext_rest",
        f"--grpc_socket_path={root / 'socket'}",
        f"--grpc_channel_arguments=grpc.max_receive_message_length={MAX_MESSAGE_BYTES},grpc.nosuch=x",
        "--grpc_max_threads=1",
        "--rest_api_num_threads=1",
        "--enable_grpc_healthcheck_service",
    )
    with ServerProcess(*flags, log=root / "log") as running:
        yield Secured(
            running,
            root / "socket",
            authority.cert_pem.bytes(),
            client.private_key_pem.bytes(),
            client.cert_chain_pems[0].bytes(),
        )


def request(model: str, signature: str = "", **inputs: object) -> predict_pb2.PredictRequest:
    message = predict_pb2.PredictRequest()
    message.model_spec.name, message.model_spec.signature_name = model, signature
    for alias, value in inputs.items():
        message.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return message


def predict(channel: grpc.Channel, message: predict_pb2.PredictRequest, timeout_s: float = 30) -> object:
    """Return the values of the first output, or the name of the error's code."""
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    try:
        response = stub.Predict(message, timeout=timeout_s)
    except grpc.RpcError as error:
        return error.code().name
    return next(iter(response.outputs.values())).float_val[:] or next(iter(response.outputs.values())).int_val[:]


def targets(secured: Secured) -> list[str]:
    return [secured.server.target, f"unix:{secured.socket}"]


def test_a_client_with_a_certificate_can_call_both_addresses(secured: Secured) -> None:
    for target in targets(secured):
        with secured.channel(target) as channel:
            assert [2.5] == predict(channel, request("half_plus_two", x=np.float32([1])))


def test_a_client_without_a_certificate_or_without_tls_cannot_connect(secured: Secured) -> None:
    for target in targets(secured):
        with secured.channel(target, with_certificate=False) as channel:
            assert "UNAVAILABLE" == predict(channel, request("half_plus_two", x=np.float32([1])))
        with grpc.insecure_channel(target) as channel:
            assert "UNAVAILABLE" == predict(channel, request("half_plus_two", x=np.float32([1])))


def test_rest_may_stay_without_tls(secured: Secured) -> None:
    assert 200 == requests.get(f"{secured.server.url}/v1/models/half_plus_two", timeout=30).status_code


def test_channel_arguments_reach_grpc(secured: Secured) -> None:
    with secured.channel(secured.server.target) as channel:
        large = request("half_plus_two", x=np.zeros(MAX_MESSAGE_BYTES, np.float32))
        assert "RESOURCE_EXHAUSTED" == predict(channel, large)


def test_health(secured: Secured) -> None:
    with secured.channel(secured.server.target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "ModelService", "PredictionService"):
            response = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=30)
            assert health_pb2.HealthCheckResponse.SERVING == response.status
        with pytest.raises(grpc.RpcError) as error:
            stub.Check(health_pb2.HealthCheckRequest(service="tensorflow.serving.PredictionService"), timeout=30)
        assert ("NOT_FOUND", "service name unknown") == (error.value.code().name, error.value.details())
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="ModelService"), timeout=30)
        assert health_pb2.HealthCheckResponse.SERVING == next(watch).status
        watch.cancel()


def test_watchers_that_come_and_go_do_not_stop_the_server(secured: Secured) -> None:
    with secured.channel(secured.server.target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for number in range(1500):
            watch = stub.Watch(health_pb2.HealthCheckRequest())
            time.sleep(number % 5 / 5000)
            watch.cancel()
        response = stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert health_pb2.HealthCheckResponse.SERVING == response.status


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_health_knows_names_and_rejects_large_messages(
    secured: Secured, compression: grpc.Compression, subtests: pytest.Subtests
) -> None:
    """A watcher may stay for days, and needs no token."""
    known = health_pb2.HealthCheckRequest(service="ModelService")
    unknown = health_pb2.HealthCheckRequest(service="x" * 5000)
    large = health_pb2.HealthCheckRequest(service="x" * 70_000)
    with secured.channel(secured.server.target, compression=compression) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert 1 == next(stub.Watch(known, timeout=30)).status
        assert health_pb2.HealthCheckResponse.SERVICE_UNKNOWN == next(stub.Watch(unknown, timeout=30)).status
        for call in (lambda: stub.Check(large, timeout=30), lambda: next(stub.Watch(large, timeout=30))):
            with subtests.test(), pytest.raises(grpc.RpcError) as error:
                call()
            assert grpc.StatusCode.RESOURCE_EXHAUSTED is error.value.code()


def test_a_health_watcher_does_not_delay_the_shutdown(half_plus_two: Path, tmp_path: Path) -> None:
    flags = (f"--model_base_path={half_plus_two}", "--enable_grpc_healthcheck_service", "--max_waiting_calls=0")
    with ServerProcess(*flags, log=tmp_path / "log") as server, grpc.insecure_channel(server.target) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""))
        assert health_pb2.HealthCheckResponse.SERVING == next(watch).status
        with watch_without_reading(server):
            assert 1 == health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10).status
            assert 0 == server.stop(timeout_s=15)  # shorter than the grace period of other calls
        assert health_pb2.HealthCheckResponse.NOT_SERVING == next(watch).status


def watch_without_reading(server: ServerProcess) -> socket.socket:
    """Return a connection with a call of Watch whose response the server may not send."""
    path = "/grpc.health.v1.Health/Watch"
    connection = http2.open_calls(server.port, path, message=b"", settings=http2.NO_WINDOW)
    time.sleep(0.5)  # until the server tries to send
    return connection


def test_without_the_flag_the_health_service_is_unimplemented(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.target) as channel, pytest.raises(grpc.RpcError) as error:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)
    assert ("UNIMPLEMENTED", "") == (error.value.code().name, error.value.details())


def test_a_grpc_call_cancelled_in_the_queue_is_not_run(secured: Secured) -> None:
    """The only thread is busy while one call is cancelled and the deadline of another passes."""
    steps = secured.server.slow_steps("half_plus_two", 0.4)
    with secured.channel(secured.server.target) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        count = request("counting", x=np.float32([1]))
        before = stub.Predict(count, timeout=30).outputs["runs"].int_val[0]
        busy = stub.Predict.future(request("half_plus_two", "slow", n=np.int32(3 * steps)), timeout=60)
        secured.server.wait_until_busy()
        cancelled = stub.Predict.future(count, timeout=60)
        # Rejected at once if the server already knows that the run takes longer.
        assert predict(channel, count, timeout_s=0.5) in ("DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
        assert not busy.done()
        cancelled.cancel()
        assert 3 * steps == busy.result().outputs["v"].float_val[0]
        assert before + 1 == stub.Predict(count, timeout=30).outputs["runs"].int_val[0]


def test_a_rest_call_whose_client_disconnects_in_the_queue_is_not_run(secured: Secured) -> None:
    """REST's only thread is busy while a client disconnects."""
    models = f"{secured.server.url}/v1/models"
    steps = secured.server.slow_steps("half_plus_two", 0.4)

    def post(model: str, *, timeout_s: float = 60, **body: object) -> dict[str, object]:
        decoded: dict[str, object] = requests.post(f"{models}/{model}:predict", json=body, timeout=timeout_s).json()
        return decoded

    with ThreadPoolExecutor(1) as pool:
        while True:
            before = post("counting", inputs=[1.0])["outputs"]
            busy = pool.submit(post, "half_plus_two", signature_name="slow", inputs=3 * steps)
            try:
                post("counting", inputs=[1.0], timeout_s=0.5)
            except requests.ReadTimeout:
                break
            busy.result()  # the second request was processed first; try again
        assert not busy.done()
        assert {"outputs": 3.0 * steps} == busy.result()
    assert before + 1 == post("counting", inputs=[1.0])["outputs"]


def test_a_run_past_its_deadline_is_stopped(secured: Secured) -> None:
    with secured.channel(secured.server.target) as channel:
        endless = request("half_plus_two", "slow", n=np.int32(2**31 - 1))
        assert "DEADLINE_EXCEEDED" == predict(channel, endless, timeout_s=0.5)
        # The only thread is free again.
        assert [2.5] == predict(channel, request("half_plus_two", x=np.float32([1])))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("server_key: 5", "Invalid protobuf file: '{path}'"),
        (ssl_config(server_key="k"), "{path}: server_cert missing, in PEM format"),
        (ssl_config(server_key="no key", server_cert="no certificate"), "Failed to BuildAndStart gRPC server"),
        (
            ssl_config(server_key="k", server_cert="c", client_verify=True),
            "{path}: client_verify needs custom_ca, the authority that signs clients' certificates",
        ),
    ],
    ids=["not a text protobuf", "no certificate", "not PEM", "no authority"],
)
def test_an_invalid_tls_config_ends_the_start(half_plus_two: Path, tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "ssl"
    path.write_text(text)
    flags = (f"--model_base_path={half_plus_two}", f"--ssl_config_file={path}", "--allow_plaintext_rest")
    server = ServerProcess(*flags, log=tmp_path / "log", wait=False)
    assert 255 == server.process.wait(60)
    expected = f"Failed to start server. Error: INVALID_ARGUMENT: {reason.format(path=path)}\n"
    assert expected in (tmp_path / "log").read_text()


def test_calls_without_a_message_block_neither_health_nor_status(secured: Secured) -> None:
    """Their threads wait for a message that never comes."""
    with secured.channel(secured.server.target) as channel:
        never = threading.Event()
        silent = [
            channel.stream_unary(path).future(iter(never.wait, None), timeout=60)
            for path in (
                "/grpc.health.v1.Health/Check",
                "/tensorflow.serving.ModelService/GetModelStatus",
                "/tensorflow.serving.PredictionService/Predict",
            )
            for _ in range(40)
        ]
        check = health_pb2.HealthCheckRequest()
        assert 1 == health_pb2_grpc.HealthStub(channel).Check(check, timeout=10).status
        # For a moment, it looks as if there was much to do.
        wait_until(lambda: [2.5] == predict(channel, request("half_plus_two", x=np.float32([1])), timeout_s=10))
        for call in silent:
            call.cancel()
        never.set()
