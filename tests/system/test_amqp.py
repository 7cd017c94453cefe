"""Requests over a real RabbitMQ: worker, clients and operator commands."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aio_pika
import bakery_command
import numpy as np
import pika
import pytest
from amqp_worker import (
    QUEUE,
    WorkerProcess,
    command,
    delete_queues,
    exchange,
    make_message,
    message_count,
    predict_request,
    publish,
    status,
    wait_for_status,
)
from rabbitmq import RabbitMQ
from waiting import wait_until

from savedmodel_bakery import (
    AmqpClient,
    AsyncAmqpClient,
    DeadlineExceededError,
    RequestRefusedError,
)
from savedmodel_bakery.wire import amqp, schema
from savedmodel_bakery.wire.status import Code

MODEL = "half_plus_two"
Connect = Callable[..., AmqpClient]
StartWorker = Callable[..., WorkerProcess]


def test_a_worker_runs_its_own_model(broker: RabbitMQ, half_plus_two: Path, connect: Connect, tmp_path: Path) -> None:
    options = ("--model-name", MODEL, "--model-base-path", str(half_plus_two), "--batch-size", "8")
    with WorkerProcess(broker.url(), *options, log=tmp_path / "log") as worker:
        client = connect()
        prediction = client.predict({"x": [1, 2, 5]})
        assert ([2.5, 3.0, 4.5], MODEL, 1) == (prediction.arrays["y"].tolist(), prediction.model, prediction.version)
        assert "AVAILABLE" == client.status()[0].state
        assert [[("half", 3.5)]] == client.classify_examples([{"x": 3.0}])
        assert [3.5] == client.regress_examples([{"x": 3.0}])
        large = np.arange(10_000_000, dtype=np.float32)
        assert np.array_equal(large / 2 + 2, client.predict({"x": large}).arrays["y"])
        with pytest.raises(
            RequestRefusedError, match=r"^RESOURCE_EXHAUSTED: .*; a RabbitMQ message may have at most 134217728$"
        ):
            client.predict({"x": np.zeros(1 << 25, np.float32)})
        with ThreadPoolExecutor(8) as pool:
            rows = list(pool.map(lambda x: connect().predict({"x": [x]}).arrays["y"].tolist(), range(24)))
        assert [[x / 2 + 2] for x in range(24)] == rows
        assert 0 == worker.stop()


def test_a_worker_calls_a_server_for_every_content_type(broker: RabbitMQ, start: StartWorker) -> None:
    start("--batch-size", "4")
    replies = exchange(
        broker.url(),
        [
            make_message(predict_request([1, 2])),
            make_message(b'{"instances": [1.0, 2.0]}', amqp.JSON),
            make_message(
                b'{"signature_name": "two", "inputs": {"a": [3], "b": [1]}}', amqp.JSON, model=MODEL, version=1
            ),
            make_message(b"\xff\xd8\xff", "image/jpeg", signature="text", input="s"),
        ],
    )
    assert [0, 0, 0, 0] == [reply.headers[amqp.STATUS] for reply in replies]
    assert amqp.PROTOBUF == replies[0].content_type
    assert "tensorflow.serving.PredictResponse" == replies[0].type
    assert [2.5, 3.0] == list(schema.PredictResponse.FromString(replies[0].body).outputs["y"].float_val)
    assert {"predictions": [2.5, 3.0]} == json.loads(replies[1].body)
    assert {"outputs": {"sum": [4.0], "diff": [2.0]}} == json.loads(replies[2].body)
    assert b'"b64": "/9j/"' in replies[3].body


def test_direct_reply_to_works(broker: RabbitMQ, start: StartWorker) -> None:
    start()
    (reply,) = exchange(broker.url(), [make_message(b'{"instances": [4.0]}', amqp.JSON)], direct=True)
    assert {"predictions": [4.0]} == json.loads(reply.body)


def ask_with_pika(url: str, body: bytes) -> bytes:
    """Its callers let the broker name the reply queue."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        reply_queue = channel.queue_declare("", exclusive=True).method.queue
        properties = pika.BasicProperties(amqp.JSON, reply_to=reply_queue, correlation_id="7")
        channel.basic_publish("", QUEUE, body, properties)
        received = next(channel.consume(reply_queue, auto_ack=True, inactivity_timeout=60))
        return bytes(received[2] or b"")


def ask_with_aio_pika(url: str, body: bytes) -> bytes:
    """A robust connection names the reply queue itself."""

    async def run() -> bytes:
        async with await aio_pika.connect_robust(url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            message = aio_pika.Message(body, content_type=amqp.JSON, reply_to=queue.name, correlation_id="7")
            await channel.default_exchange.publish(message, QUEUE)
            async with queue.iterator(no_ack=True, timeout=60) as replies:
                return bytes((await anext(replies)).body)

    return asyncio.run(run())


def test_other_clients_get_replies_in_the_queues_that_they_make(broker: RabbitMQ, start: StartWorker) -> None:
    """With the worker's defaults."""
    start()
    for ask in (ask_with_pika, ask_with_aio_pika):
        assert {"predictions": [4.0]} == json.loads(ask(broker.url(), b'{"instances": [4.0]}')), ask.__name__


def test_mistakes_are_answered_and_undecodable_messages_are_also_dead_lettered(
    broker: RabbitMQ, start: StartWorker
) -> None:
    start()
    invalid = [
        make_message(predict_request(np.float32([1]), signature="nope")),
        make_message(b'{"instances": ["one"]}', amqp.JSON),
        make_message(b"\xff" * 10),
        make_message(b"{", amqp.JSON),
        make_message(b"x", "text/plain"),
    ]
    replies = exchange(broker.url(), invalid)
    codes = [Code(reply.headers[amqp.STATUS]) for reply in replies]
    assert [Code.FAILED_PRECONDITION, *[Code.INVALID_ARGUMENT] * 4] == codes
    assert all(reply.headers[amqp.MESSAGE] for reply in replies)
    assert {
        "INVALID_ARGUMENT: the body (10 bytes) is not a valid tensorflow.serving.PredictRequest": 1,
        'INVALID_ARGUMENT: unsupported content type "text/plain": must be application/x-protobuf, application/json '
        "or image/…": 1,
    }.items() <= status(broker.url(), "--reasons")["reasons"].items()
    wait_for_status(broker.url(), ready=0, dead=3)


def test_a_message_without_reply_queue_is_dead_lettered_and_can_be_requeued(
    broker: RabbitMQ, start: StartWorker, connect: Connect
) -> None:
    worker = start()
    unroutable, without_reply_to = make_message(predict_request([6])), make_message(predict_request([8]))
    unroutable.reply_to = "results.photos"
    publish(broker.url(), unroutable, without_reply_to)
    wait_for_status(broker.url(), ready=0, dead=2)
    assert {
        'reply queue "results.photos" does not exist': 1,
        "INVALID_ARGUMENT: the message has no reply_to": 1,
    } == status(broker.url(), "--reasons")["reasons"]
    client = connect()
    assert [] == list(client.results("results.photos", idle_s=0.1))  # creates the queue
    assert "2 requeued\n" == command(broker.url(), "requeue")
    assert [[5.0]] == [prediction.arrays["y"].tolist() for _, prediction in client.results("results.photos", idle_s=2)]
    wait_for_status(broker.url(), ready=0, dead=1)
    assert 0 == worker.stop()


def test_replies_go_to_allowed_queues_alone(broker: RabbitMQ, start: StartWorker, connect: Connect) -> None:
    """Neither a worker nor a purge writes to another queue."""
    client = connect()
    queues = ["labels", "labels.2", "results", "payroll", "bakery.predict.dead"]

    def submit() -> None:
        for queue in queues:
            message = make_message(predict_request([6]))
            message.reply_to = queue
            publish(broker.url(), message)

    for queue in queues[:4]:
        assert [] == list(client.results(queue, idle_s=0.1))  # creates the queue
    worker = start("--result-queue", "labels", "--result-queue", "pay*")
    submit()
    wait_for_status(broker.url(), ready=0, dead=3)
    worker.stop()
    assert [1, 0, 0, 1] == [message_count(broker.url(), queue) for queue in queues[:4]]
    reason = (
        'PERMISSION_DENIED: reply_to "{}" is not allowed: must be amq.* or amq_* or labels or pay* (--result-queue)'
    )
    refused = ("labels.2", "results", "bakery.predict.dead")
    assert {reason.format(queue): 1 for queue in refused} == status(broker.url(), "--reasons")["reasons"]
    submit()
    assert "5 purged\n" == command(broker.url(), "purge")
    assert [1, 0, 1, 1] == [message_count(broker.url(), queue) for queue in queues[:4]]
    wait_for_status(broker.url(), dead=3)


def test_purge_replies_to_every_waiting_caller(broker: RabbitMQ, start: StartWorker, connect: Connect) -> None:
    start().stop()

    def call(_: int) -> str:
        with pytest.raises(RequestRefusedError) as caught:
            connect().status()
        return str(caught.value)

    with ThreadPoolExecutor(5) as pool:
        errors = [pool.submit(call, number) for number in range(5)]
        wait_for_status(broker.url(), ready=5)
        assert "5 purged\n" == command(broker.url(), "purge")
        assert [f'ABORTED: queue "{QUEUE}" was purged'] * 5 == [error.result(30) for error in errors]
    assert f"{QUEUE}\tready 0\tconsumers 0\tdead letters 0\n" == command(broker.url(), "status")


def test_commands_need_only_the_queue_of_the_callers(broker: RabbitMQ, start: StartWorker) -> None:
    """A worker of an earlier release declared no retry queue."""
    start().stop()
    publish(broker.url(), make_message(predict_request([1])))
    delete_queues(broker.url(), f"{QUEUE}.retry", f"{QUEUE}.dead")
    document = {"queue": QUEUE, "ready": 1, "consumers": 0, "dead": 0, "reasons": {}}
    assert document == status(broker.url(), "--reasons")
    assert ("0 requeued\n", "1 purged\n") == (command(broker.url(), "requeue"), command(broker.url(), "purge"))
    delete_queues(broker.url(), QUEUE)
    for name in ("status", "requeue", "purge"):
        full = [sys.executable, "-m", "savedmodel_bakery.serving", "amqp", name, "--url", broker.url()]
        process = subprocess.run(full, capture_output=True, text=True, timeout=60, check=False)
        assert (1, "", 1) == (process.returncode, process.stdout, process.stderr.count("\n")), process.stderr
        assert f"NOT_FOUND - no queue '{QUEUE}'" in process.stderr


def test_a_purge_ends_a_bulk_job(broker: RabbitMQ, start: StartWorker, tmp_path: Path) -> None:
    start().stop()
    job = ("classify", str(tmp_path), "--all-files", "--out", str(tmp_path / "rows.jsonl"))
    full = [sys.executable, "-m", "savedmodel_bakery.client", "--format", "AMQP", "-t", broker.url(), *job]
    with subprocess.Popen(full, stderr=subprocess.PIPE, text=True) as process:
        wait_for_status(broker.url(), ready=1)
        assert "1 purged\n" == command(broker.url(), "purge")
        _, error = process.communicate(timeout=60)
    assert (1, True) == (process.returncode, "was purged" in error)
    assert 0 == status(broker.url())["ready"]


@pytest.mark.own_broker
def test_submitted_requests_survive_a_restart_of_the_broker(
    broker: RabbitMQ, start: StartWorker, connect: Connect
) -> None:
    worker = start()
    worker.stop()
    ids = [connect().submit({"x": np.float32([x])}, result_queue="results") for x in (0, 2, 4)]
    ids.append(connect().submit({"x": np.float32([0])}, result_queue="results", signature="nope"))
    broker.stop()
    broker.start()
    assert 4 == status(broker.url())["ready"]
    start()
    results = dict(connect().results("results", idle_s=3))
    assert [[2.0], [3.0], [4.0]] == [results[identity].arrays["y"].tolist() for identity in ids[:3]]
    assert isinstance(results[ids[3]], RequestRefusedError)
    assert [] == list(connect().results("results", idle_s=0.1))


def test_requests_and_replies_expire(broker: RabbitMQ, start: StartWorker, connect: Connect) -> None:
    """A request when its caller stops waiting; a reply after --expiration-seconds."""
    start().stop()
    with pytest.raises(DeadlineExceededError, match="within 5 s"):
        connect(timeout_s=5.0).status()  # connecting to a busy broker takes a part of it
    wait_for_status(broker.url(), ready=0, dead=1)
    assert {"expired": 1} == status(broker.url(), "--reasons")["reasons"]
    for expiration_s, count in (("60", 1), ("1", 0)):
        worker = start("--expiration-seconds", expiration_s)
        client = connect()
        client.submit({"x": np.float32([1])}, result_queue="results")
        wait_for_status(broker.url(), ready=0)
        worker.stop()
        wait_until(lambda count=count: count == message_count(broker.url(), "results"))
        assert count == len(list(client.results("results", idle_s=1)))


def test_the_client_command_sends_and_fetches(broker: RabbitMQ, start: StartWorker, tmp_path: Path) -> None:
    start()
    (tmp_path / "x.json").write_text("[1, 2]")

    def run(*arguments: str) -> str:
        options = ("--format", "AMQP", "-t", broker.url(), "-m", MODEL)
        full = [sys.executable, "-m", "savedmodel_bakery.client", *options, *arguments]
        return subprocess.run(full, check=True, capture_output=True, text=True, timeout=60).stdout

    assert '{"y": [2.5, 3.0]}\n' == run("predict", "--input", f"x={tmp_path}/x.json")
    assert "1\tAVAILABLE\n" == run("status")
    identity = run("--result_queue", "results", "-i", str(tmp_path / "x.json")).strip()
    (line,) = run("results", "results").splitlines()
    assert identity == json.loads(line)["id"]
    assert "INVALID_ARGUMENT" in json.loads(line)["error"]
    identity = run("--result-queue", "results", "-i", str(tmp_path / "x.json")).strip()
    ended = bakery_command.run("amqp", "results", "results", "--url", broker.url(), "--idle-seconds", "5")
    assert (0, identity) == (ended.returncode, json.loads(ended.stdout)["id"])


def test_async_clients_call_concurrently_and_fetch_results(broker: RabbitMQ, start: StartWorker) -> None:
    start()

    async def run() -> tuple[list[list[float]], str, list[tuple[str, list[float]]]]:
        async with AsyncAmqpClient(broker.url(), model=MODEL) as client:
            predictions = await asyncio.gather(*(client.predict({"x": [x]}) for x in range(8)))
            identity = await client.submit({"x": np.float32([2])}, result_queue="results")
            results = [(key, result.arrays["y"].tolist()) async for key, result in client.results("results", idle_s=2)]
            return [prediction.arrays["y"].tolist() for prediction in predictions], identity, results

    predictions, identity, results = asyncio.run(run())
    assert [[x / 2 + 2] for x in range(8)] == predictions
    assert [(identity, [3.0])] == results
