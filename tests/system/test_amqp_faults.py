"""Crashing workers, lost connections, unavailable servers and a broker without memory."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import requests
from amqp_worker import (
    QUEUE,
    START_LIMIT_S,
    HoldingServer,
    WorkerProcess,
    answering_server,
    crashing_server,
    delete_queues,
    exchange,
    holding_server,
    make_message,
    predict_request,
    publish,
    status,
    wait_for_status,
)
from rabbitmq import RabbitMQ
from server_process import ServerProcess, free_port
from waiting import wait_until

from savedmodel_bakery import (
    AmqpClient,
    ConnectionFailedError,
    DeadlineExceededError,
)
from savedmodel_bakery.wire import amqp, schema
from savedmodel_bakery.wire.status import Code
from savedmodel_bakery.wire.tensors import decode_array

MODEL = "half_plus_two"
Connect = Callable[..., AmqpClient]
StartWorker = Callable[..., WorkerProcess]


def kill_when_it_processes(broker: RabbitMQ, worker: WorkerProcess, server: HoldingServer) -> None:
    """Kill a worker whose call has reached the server; one that still moves the message can leave two copies of it."""
    assert server.called.acquire(timeout=START_LIMIT_S)
    wait_for_status(broker.url(), ready=0)
    worker.kill()


def test_a_message_that_crashes_workers_is_dead_lettered_and_its_caller_gets_aborted(
    broker: RabbitMQ, start: StartWorker
) -> None:
    """The test kills each worker that holds the message."""
    with holding_server() as server, ThreadPoolExecutor() as pool:
        start("--delivery-limit", "2").stop()
        replies = pool.submit(exchange, broker.url(), [make_message(predict_request([1]))])
        wait_for_status(broker.url(), ready=1)
        for _ in range(2):
            worker = start("--delivery-limit", "2", target=server.target)
            kill_when_it_processes(broker, worker, server)
            wait_for_status(broker.url(), ready=1)
        start("--delivery-limit", "2")
        (reply,) = replies.result(120)
    assert Code.ABORTED == reply.headers[amqp.STATUS]
    message = (
        "the message was delivered 2 times without a reply; it may crash workers, and was moved to the "
        "dead-letter queue"
    )
    assert message == reply.headers[amqp.MESSAGE]
    assert {f"ABORTED: {message}": 1} == status(broker.url(), "--reasons")["reasons"]


@pytest.mark.own_broker
def test_the_broker_says_that_a_message_takes_too_long(broker: RabbitMQ, start: StartWorker) -> None:
    """It closes the worker's channel; the log, the reply and the dead letter have its words."""
    broker.control(
        "eval",
        "application:set_env(rabbit, consumer_timeout, 2000), application:set_env(rabbit, channel_tick_interval, 500).",
    )
    words = "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 2000 ms"
    with holding_server() as server:
        worker = start("--delivery-limit", "1", target=server.target)
        (reply,) = exchange(broker.url(), [make_message(predict_request([1]))])
    message = str(reply.headers[amqp.MESSAGE])
    assert Code.ABORTED == reply.headers[amqp.STATUS]
    assert f"1 times without a reply; it may crash workers, or take longer than the broker allows ({words}" in message
    assert {f"ABORTED: {message}": 1} == status(broker.url(), "--reasons")["reasons"]
    assert f"the broker, or the connection to it, was lost: {words}" in worker.log.read_text()


def test_a_redelivered_message_is_processed_while_no_fresh_message_waits(broker: RabbitMQ, start: StartWorker) -> None:
    """By the only call of a worker."""
    with holding_server() as server, ThreadPoolExecutor() as pool:
        start().stop()  # declares the queues
        replies = pool.submit(exchange, broker.url(), [make_message(predict_request([1]))])
        wait_for_status(broker.url(), ready=1)
        kill_when_it_processes(broker, start(target=server.target), server)
        wait_for_status(broker.url(), ready=1)
        server.released.set()
        worker = start("--calls", "1", target=server.target)
        (reply,) = replies.result(120)
    assert Code.OK == reply.headers[amqp.STATUS]
    assert "a message is delivered again" in worker.log.read_text()


def test_messages_prefetched_beside_a_crashing_one_are_answered(broker: RabbitMQ, start: StartWorker) -> None:
    """The server kills the worker that calls it with one of the messages.

    The first crash counts as a delivery of the other messages, the second must not.
    """
    options = ("--delivery-limit", "2", "--prefetch", "61")
    crashing = predict_request([100])
    workers: list[WorkerProcess] = []

    def answer(request: bytes) -> bytes:
        x = decode_array(schema.PredictRequest.FromString(request).inputs["x"])
        if x.tolist() == [100]:
            workers[-1].process.kill()
        return b""

    with answering_server(answer) as target, ThreadPoolExecutor() as pool:
        start(*options).stop()
        bodies = [predict_request([number]) for number in range(60)]
        bodies.insert(3, crashing)
        replies = pool.submit(exchange, broker.url(), [make_message(body) for body in bodies])
        wait_for_status(broker.url(), ready=61)
        for _ in range(2):
            workers.append(start(*options, target=target, wait=False))
            assert -signal.SIGKILL == workers[-1].process.wait(60)
        start(*options, target=target)
        codes = [Code(reply.headers[amqp.STATUS]) for reply in replies.result(120)]
    assert Code.ABORTED == codes.pop(3)
    assert [Code.OK] * 60 == codes
    wait_for_status(broker.url(), ready=0, dead=1)


def test_a_message_that_crashes_the_server_is_dead_lettered_and_all_others_are_answered(
    broker: RabbitMQ, start: StartWorker
) -> None:
    bodies = [predict_request([number]) for number in range(20)]
    bodies.insert(3, predict_request([99]))
    with crashing_server(np.float32(99).tobytes()) as (target, exit_codes):
        worker = start("--retry-attempts", "2", "--batch-size", "2", target=target)
        replies = exchange(broker.url(), [make_message(body) for body in bodies])
        wait_for_status(broker.url(), ready=0, dead=1)
        assert 0 == worker.stop()
        assert [1, 1] == exit_codes
    dead = replies.pop(3)
    assert [Code.OK] * 20 == [reply.headers[amqp.STATUS] for reply in replies]
    assert Code.ABORTED == dead.headers[amqp.STATUS]
    assert dead.headers[amqp.MESSAGE].startswith(
        "the model server was unavailable or overloaded in 2 attempts (--retry-attempts), perhaps because of the "
        "message, which was moved to the dead-letter queue; last error: UNAVAILABLE: "
    )
    assert {f"ABORTED: {dead.headers[amqp.MESSAGE]}": 1} == status(broker.url(), "--reasons")["reasons"]


def test_delivered_messages_are_limited_in_number_and_size(broker: RabbitMQ, start: StartWorker) -> None:
    """Half of the memory has room for three messages of the largest size, and one of the retry queue."""
    limits = ("--memory-budget-bytes", str(2**20), "--max-message-bytes", str(2**17))
    with holding_server() as server, ThreadPoolExecutor() as pool:
        worker = start(*limits, target=server.target)
        assert "prefetching 3 messages instead of 16" in worker.log.read_text()
        replies = pool.submit(exchange, broker.url(), [make_message(predict_request([1])) for _ in range(5)])
        wait_for_status(broker.url(), ready=2)
        server.released.set()
        assert [Code.OK] * 5 == [reply.headers[amqp.STATUS] for reply in replies.result(60)]
        (reply,) = exchange(broker.url(), [make_message(bytes(2**17 + 1), amqp.JSON)])
    message = "the message has 131073 bytes; at most 131072 are allowed (--max-message-bytes)"
    assert (Code.RESOURCE_EXHAUSTED, message) == (reply.headers[amqp.STATUS], reply.headers[amqp.MESSAGE])
    wait_for_status(broker.url(), ready=0, dead=1)


@pytest.mark.own_broker
def test_an_outage_of_the_server_costs_no_attempt_and_no_connection(
    broker: RabbitMQ, half_plus_two: Path, start: StartWorker, tmp_path: Path
) -> None:
    port = free_port()
    options = ("--retry-attempts", "1", "--prefetch", "2")
    worker = start(*options, url=broker.url(options="?heartbeat=1"), target=f"127.0.0.1:{port}")
    before = broker.control("list_connections", "pid")
    replies: list[object] = []
    messages = [make_message(predict_request([8])) for _ in range(5)]
    caller = threading.Thread(target=lambda: replies.extend(exchange(broker.url(), messages)))
    caller.start()
    worker.wait_for_log("the model server is unreachable", 4)  # takes longer than the broker waits for a heartbeat
    wait_for_status(broker.url(), ready=3)
    flags = (f"--model_name={MODEL}", f"--model_base_path={half_plus_two}", f"--port={port}")
    with ServerProcess(*flags, log=tmp_path / "server.log"):
        caller.join(60)
    values = [schema.PredictResponse.FromString(reply.body).outputs["y"].float_val for reply in replies]
    assert [[6.0]] * 5 == [list(value) for value in values]
    assert set(before.split()) < set(broker.control("list_connections", "pid").split())  # that for replies is new
    assert 1 == worker.log.read_text().count("Consuming queue")


def test_sigterm_finishes_the_prefetched_messages(broker: RabbitMQ, start: StartWorker) -> None:
    """One message is with the server, two wait in the worker; the fourth is not prefetched."""
    with holding_server() as server, ThreadPoolExecutor() as pool:
        worker = start("--calls", "1", "--prefetch", "3", target=server.target)
        messages = [make_message(predict_request([1])) for _ in range(4)]
        replies = pool.submit(exchange, broker.url(), messages)
        wait_for_status(broker.url(), ready=1)
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for_log("Finishing 3 prefetched messages")
        server.released.set()
        assert 0 == worker.process.wait(60)
        assert "unprocessed" not in worker.log.read_text()
        assert 1 == status(broker.url())["ready"]
        start(target=server.target)
        assert 4 == len(replies.result(120))
    assert {"ready": 0, "dead": 0}.items() <= status(broker.url()).items()


@pytest.mark.own_broker
def test_workers_and_clients_reconnect_after_a_restart_of_the_broker(
    broker: RabbitMQ, start: StartWorker, connect: Connect
) -> None:
    worker = start()
    client = connect()
    assert [2.0] == client.predict({"x": [0]}).arrays["y"].tolist()
    broker.stop()
    with pytest.raises(ConnectionFailedError):
        client.predict({"x": [0]})
    worker.wait_for_log("reconnecting in")
    broker.start()
    worker.wait_for_log("Consuming queue", 2)
    assert [2.5] == client.predict({"x": [1]}).arrays["y"].tolist()


@pytest.mark.own_broker
def test_a_lost_connection_is_not_the_end_of_the_results(
    broker: RabbitMQ, start: StartWorker, connect: Connect
) -> None:
    start()
    client = connect()
    client.submit({"x": np.float32([0])}, result_queue="results")
    results = client.results("results", idle_s=60)
    assert [2.0] == next(results)[1].arrays["y"].tolist()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(next, results, None)
        broker.stop()
        with pytest.raises(ConnectionFailedError, match=r"^the connection to the broker 127\.0\.0\.1:\d+ was lost"):
            waiting.result(30)
    broker.start()


@pytest.mark.timeout(400)
@pytest.mark.own_broker
def test_a_broker_without_memory_delays_no_caller_beyond_the_timeout(
    broker: RabbitMQ, start: StartWorker, connect: Connect
) -> None:
    """RabbitMQ does not read from connections that publish until it has memory again."""
    start()
    client = connect(timeout_s=3.0)
    inputs = {"x": np.float32([0])}
    assert [2.0] == client.predict(inputs).arrays["y"].tolist()
    broker.control("set_vm_memory_high_watermark", "absolute", "1MB")
    try:
        wait_until(lambda: "block" in broker.control("list_connections", "state"))
        for call in (
            lambda: client.predict(inputs),
            lambda: client.submit(inputs, result_queue="results"),
            lambda: list(client.results("results", idle_s=0.1)),
        ):
            with pytest.raises(DeadlineExceededError, match="within 3 s"):
                call()
        connect(timeout_s=3.0).close()
    finally:
        broker.control("set_vm_memory_high_watermark", "absolute", "1GB")
    assert [2.0] == connect().predict(inputs).arrays["y"].tolist()


def test_a_deleted_queue_is_declared_again(broker: RabbitMQ, start: StartWorker, connect: Connect) -> None:
    worker = start()
    delete_queues(broker.url(), QUEUE, f"{QUEUE}.dead")
    worker.wait_for_log("Consuming queue", 2)
    assert f"queue {QUEUE} was deleted" in worker.log.read_text()
    assert [2.5] == connect().predict({"x": [1]}).arrays["y"].tolist()


def test_metrics_count_redeliveries_dead_letters_and_what_waits(broker: RabbitMQ, start: StartWorker) -> None:
    with holding_server() as server, ThreadPoolExecutor() as pool:
        start("--delivery-limit", "2").stop()
        replies = pool.submit(exchange, broker.url(), [make_message(predict_request([1]))])
        wait_for_status(broker.url(), ready=1)
        for _ in range(2):
            worker = start("--delivery-limit", "2", target=server.target)
            kill_when_it_processes(broker, worker, server)
            wait_for_status(broker.url(), ready=1)
        port = free_port()
        start("--delivery-limit", "2", "--metrics-port", str(port))
        assert Code.ABORTED == replies.result(120)[0].headers[amqp.STATUS]
        expected = {
            'bakery_amqp_messages_total{status="ABORTED"} 1.0',
            "bakery_amqp_redeliveries_total 1.0",
            "bakery_amqp_dead_letters_total 1.0",
            f'bakery_amqp_waiting_messages{{queue="{QUEUE}"}} 0.0',
            f'bakery_amqp_waiting_dead_letters{{queue="{QUEUE}"}} 1.0',
            f'bakery_amqp_consumers{{queue="{QUEUE}"}} 1.0',
        }
        page: set[str] = set()

        def is_published() -> bool:
            page.update(requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text.splitlines())
            return expected <= page

        wait_until(is_published, describe=lambda: expected - page)


def metrics(port: int) -> dict[str, float]:
    """Return the values of the worker's own metrics, by name and labels."""
    lines = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text.splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith("bakery_amqp_"))
    return {name: float(value) for name, _, value in found}


def test_a_redelivered_message_that_is_dead_lettered_at_once_is_counted(broker: RabbitMQ, start: StartWorker) -> None:
    limit = ("--delivery-limit", "1")
    with holding_server() as server, ThreadPoolExecutor() as pool:
        killed = start(*limit, target=server.target)
        replies = pool.submit(exchange, broker.url(), [make_message(predict_request([1]))])
        kill_when_it_processes(broker, killed, server)
        wait_for_status(broker.url(), ready=1)
        port = free_port()
        start(*limit, "--metrics-port", str(port))
        assert Code.ABORTED == replies.result(120)[0].headers[amqp.STATUS]
    assert 1 == metrics(port)["bakery_amqp_redeliveries_total"]


@pytest.mark.own_broker
def test_dead_letters_are_counted_when_the_broker_has_them(broker: RabbitMQ, start: StartWorker) -> None:
    """The broker takes no messages until it has memory again."""
    start().stop()  # declares the queues
    publish(broker.url(), make_message(b"without a queue for the reply"))
    broker.control("set_vm_memory_high_watermark", "absolute", "1MB")
    port = free_port()
    try:
        start("--metrics-port", str(port)).wait_for_log("dead-lettering a message")
        assert 0 == metrics(port)["bakery_amqp_dead_letters_total"]
    finally:
        broker.control("set_vm_memory_high_watermark", "absolute", "1GB")
    wait_until(lambda: metrics(port)["bakery_amqp_dead_letters_total"] == 1)
    wait_for_status(broker.url(), ready=0, dead=1)


@pytest.mark.own_broker
def test_metrics_of_the_queue_disappear_while_the_broker_is_away(broker: RabbitMQ, start: StartWorker) -> None:
    port = free_port()
    worker = start("--metrics-port", str(port))
    names = {
        f'bakery_amqp_{name}{{queue="{QUEUE}"}}' for name in ("waiting_messages", "waiting_dead_letters", "consumers")
    }
    wait_until(lambda: names <= metrics(port).keys())
    broker.stop()
    wait_until(lambda: not names & metrics(port).keys())
    broker.start()
    wait_until(lambda: names <= metrics(port).keys())
    assert 1 == worker.log.read_text().count(
        f"WARNING savedmodel_bakery.serving.amqp.server] no metrics of queue {QUEUE}"
    )


def test_a_port_for_metrics_that_is_taken_is_an_error(broker: RabbitMQ, tmp_path: Path, server: ServerProcess) -> None:
    options = ("--server", server.target, "--metrics-port", str(server.rest_api_port))
    worker = WorkerProcess(broker.url(), *options, log=tmp_path / "log", wait=False)
    assert 1 == worker.process.wait(60)
    place = f"127.0.0.1:{server.rest_api_port}"
    assert f"error: cannot listen on {place} for --metrics-port: Address already in use\n" == worker.log.read_text()
