"""AMQP clients without a broker; tests/system has the tests with one."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock, patch

import aio_pika
import numpy as np
import pytest
from aio_pika import exceptions
from pamqp.commands import Basic

from savedmodel_bakery import (
    AmqpClient,
    AsyncAmqpClient,
    AsyncClient,
    Client,
    ConnectionFailedError,
    RequestRefusedError,
)
from savedmodel_bakery.client.calls import ModelSpec, Predict
from savedmodel_bakery.client.transports.amqp_aio import AmqpAioTransport
from savedmodel_bakery.client.transports.amqp_broker import Broker
from savedmodel_bakery.extras import install_command
from savedmodel_bakery.wire.status import Code

HIDDEN = "import sys; sys.modules['aio_pika'] = None; "
COMMAND = "from savedmodel_bakery.client.commands.cli import main; main()"


def test_without_the_extra_the_error_names_it(tmp_path: Path) -> None:
    library = (
        "from savedmodel_bakery import AmqpClient\ntry: AmqpClient()\nexcept ModuleNotFoundError as error: print(error)"
    )
    expected = f"AMQP needs aio_pika, which is not installed; try: {install_command('amqp')}\n"
    process = subprocess.run([sys.executable, "-c", HIDDEN + library], check=True, capture_output=True, text=True)
    assert expected == process.stdout
    photo = tmp_path / "horse.jpg"
    photo.touch()
    for arguments in (["status"], ["bulk", photo, "--out", tmp_path / "rows.jsonl"]):
        command = [sys.executable, "-c", HIDDEN + COMMAND, "--format", "AMQP", *arguments]
        process = subprocess.run(command, check=False, capture_output=True, text=True)
        assert (1, f"error: {expected}") == (process.returncode, process.stderr)


def test_a_missing_broker_is_a_failed_connection_and_the_password_is_not_shown(closed_port: int) -> None:
    url = f"amqp://caller:correct-horse@127.0.0.1:{closed_port}/"
    with AmqpClient(url) as client, pytest.raises(ConnectionFailedError) as caught:
        client.status()
    assert f"cannot connect to 127.0.0.1:{closed_port} over AMQP; is a broker running there?" == str(caught.value)
    assert isinstance(cause := caught.value.__cause__, ConnectionRefusedError)
    assert (None, None) == (cause.__cause__, cause.__traceback__)
    command = [sys.executable, "-m", "savedmodel_bakery.client", "--format", "AMQP", "-t", url, "status"]
    process = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (3, "", f"error: {caught.value}\n") == (process.returncode, process.stdout, process.stderr)


def test_a_failed_connection_is_closed_in_the_thread_that_opened_it(closed_port: int) -> None:
    with AmqpClient(f"127.0.0.1:{closed_port}") as client:
        with pytest.raises(ConnectionFailedError) as caught:
            client.status()
        held = [each for each in gc.get_objects() if isinstance(each, aio_pika.Connection)]  # by its traceback
    assert caught.tb is not None
    assert held
    assert all(connection.is_closed for connection in held)


def test_a_full_queue_is_named() -> None:
    opened = Mock(pending={})
    opened.replies.name = "replies"
    opened.channel.default_exchange.publish = AsyncMock(side_effect=exceptions.DeliveryError(None, Basic.Nack()))
    transport = AmqpAioTransport(Broker.parse("127.0.0.1"), queue="work", timeout_s=0.3)
    call = Predict(ModelSpec("flowers"), "serving_default", {"x": np.zeros(1)}, (), None)
    with patch.object(transport, "_open", AsyncMock(return_value=opened)), pytest.raises(RequestRefusedError) as caught:
        asyncio.run(transport.send(call))
    assert (Code.UNAVAILABLE, 'UNAVAILABLE: queue "work" is full') == (caught.value.code, str(caught.value))


@pytest.mark.parametrize("client", [AmqpClient, AsyncAmqpClient])
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("ftp://host", r"must be HOST\[:PORT\] or amqp\[s\]://USER:PASSWORD@HOST:PORT/VHOST"),
        (["127.0.0.1"], "must be one str, not a list"),
        (("127.0.0.1",), "must be one str, not a tuple"),
    ],
    ids=["FTP", "list", "tuple"],
)
def test_an_invalid_broker_address_is_a_value_error(client: Any, target: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"invalid broker address: {message}"):
        client(target)


def test_the_amqp_transport_of_client_is_an_error_that_names_amqp_client() -> None:
    with pytest.raises(ValueError, match=r'invalid transport "amqp".*AmqpClient'):
        Client(transport="amqp")


def test_a_brokers_url_is_not_a_servers_address_and_the_password_is_not_shown() -> None:
    with pytest.raises(ValueError, match=r"invalid target \"amqp://…@host/\"") as caught:
        Client("amqp://caller:correct-horse@host/")
    assert "horse" not in str(caught.value)


def test_a_closed_client_can_be_closed_again_and_sends_nothing() -> None:
    client = AmqpClient()
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.submit({"x": 1}, result_queue="results")


def test_only_amqp_clients_have_submit_and_results() -> None:
    for name in ("submit", "results"):
        assert not hasattr(Client, name)
        assert not hasattr(AsyncClient, name)
        assert hasattr(AmqpClient, name)
        assert hasattr(AsyncAmqpClient, name)


URLS = [
    "http://guest:correct-horse@host/",
    "amqp://:correct-horse@/",
    "correct-horse@host:x",
    "amqp://u:correct-horse@h:70000/",
]


@pytest.mark.parametrize("url", URLS)
def test_the_error_for_an_invalid_url_hides_the_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid broker address: must be HOST\[:PORT\] or amqp") as caught:
        Broker.parse(url)
    assert "horse" not in str(caught.value)


def test_the_repr_of_a_broker_hides_the_password() -> None:
    broker = Broker.parse("amqps://worker:correct-horse@broker.example/vhost")
    assert ("broker.example:5671", "amqps") == (broker.endpoint.address, broker.url.scheme)
    assert "horse" not in repr(broker)
    assert "127.0.0.1:5673" == Broker.parse("127.0.0.1:5673").endpoint.address
    with pytest.raises(ValueError, match=r"^cafile not found: missing.pem$"):
        Broker.parse("amqps://worker@broker.example/?cafile=missing.pem")
