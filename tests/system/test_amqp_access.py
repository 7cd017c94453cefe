"""Permissions, passwords and TLS of the broker; queues that were declared with other arguments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from amqp_worker import (
    QUEUE,
    WorkerProcess,
)
from rabbitmq import RabbitMQ
from server_process import ServerProcess
from waiting import wait_until

from savedmodel_bakery import (
    AmqpClient,
    ConnectionFailedError,
    RequestRefusedError,
)

MODEL = "half_plus_two"
Connect = Callable[..., AmqpClient]
StartWorker = Callable[..., WorkerProcess]


def test_a_queue_with_other_arguments_is_refused(start: StartWorker) -> None:
    start().stop()
    worker = start("--delivery-limit", "7", wait=False)
    assert 1 == worker.process.wait(60)
    assert "FAILED_PRECONDITION" in worker.log.read_text()
    assert "x-delivery-limit" in worker.log.read_text()


@pytest.mark.own_broker
def test_users_need_few_permissions_and_no_output_contains_a_password(
    broker: RabbitMQ, start: StartWorker, connect: Connect
) -> None:
    secret = "correct-horse"
    broker.add_user(
        "worker",
        secret,
        rf"^{QUEUE}(\.dead|\.retry)?$",
        rf"^(amq\.default|{QUEUE}(\.dead|\.retry)?)$",
        rf"^{QUEUE}(\.retry)?$",
    )
    broker.add_user("caller", secret, r"^amq\.gen", r"^(amq\.default|amq\.gen.*)$", r"^amq\.gen")
    worker = start(url=broker.url("worker", secret))
    assert [2.5] == connect(broker.url("caller", secret)).predict({"x": [1]}).arrays["y"].tolist()
    output = worker.log.read_text()
    for invalid in (
        broker.url("caller", f"{secret}!"),
        broker.url("nobody", secret),
        broker.url("caller", secret) + "nowhere",
    ):
        with pytest.raises(RequestRefusedError) as caught:
            connect(invalid).status()
        process = subprocess.run(
            [sys.executable, "-m", "savedmodel_bakery.serving", "amqp", "status", "--url", invalid],
            capture_output=True,
            text=True,
            check=False,
        )
        assert 1 == process.returncode
        output += str(caught.value) + repr(caught.value) + process.stdout + process.stderr
    broker.add_user("reader", secret, "^$", "^$", ".*")
    client = connect(broker.url("reader", secret))
    with pytest.raises(RequestRefusedError, match=r"^PERMISSION_DENIED"):
        client.status()
    wait_until(lambda: "reader" not in broker.control("list_connections", "user"))  # the client has disconnected
    denied = start(url=broker.url("caller", secret), wait=False)
    assert 1 == denied.process.wait(60)
    assert "PERMISSION_DENIED" in denied.log.read_text()
    assert secret not in output + denied.log.read_text()


def test_tls_with_client_certificates(server: ServerProcess, tmp_path: Path) -> None:
    authority = trustme.CA()
    files = {name: str(tmp_path / f"{name}.pem") for name in ("ca", "server", "server_key", "client", "client_key")}
    authority.cert_pem.write_to_path(files["ca"])
    for name, issued in (("server", authority.issue_cert("127.0.0.1")), ("client", authority.issue_cert("worker"))):
        issued.cert_chain_pems[0].write_to_path(files[name])
        issued.private_key_pem.write_to_path(files[f"{name}_key"])
    settings = (
        "listeners.ssl.local = 127.0.0.1:{{tls_port}}\n"
        "ssl_options.cacertfile = {ca}\nssl_options.certfile = {server}\nssl_options.keyfile = {server_key}\n"
        "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n"
    ).format(**files)
    with RabbitMQ(tmp_path / "rabbitmq", settings) as secured:
        plain = f"amqps://guest:guest@127.0.0.1:{secured.tls_port}/"
        trusted = f"{plain}?cafile={files['ca']}"
        url = f"{trusted}&certfile={files['client']}&keyfile={files['client_key']}"
        with WorkerProcess(url, "--server", server.target, log=tmp_path / "log"):
            with AmqpClient(url, model=MODEL) as client:
                assert [2.5] == client.predict({"x": [1]}).arrays["y"].tolist()
            for invalid, message in ((plain, "is not trusted"), (trusted, "127.0.0.1")):
                with (
                    AmqpClient(invalid, model=MODEL) as client,
                    pytest.raises(ConnectionFailedError, match=message),
                ):
                    client.predict({"x": [1]})
