"""The worker, the client and the operator's commands, with a real RabbitMQ between them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aio_pika
import model_makers
import numpy as np
import pytest
import trustme
from amqp_worker import (
    QUEUE,
    WorkerProcess,
    answering_server,
    command,
    delete_queues,
    exchange,
    holding_server,
    publish,
    status,
    wait_for_status,
)
from rabbitmq import RabbitMQ
from server_process import ServerProcess, free_port

from savedmodel_bakery.client import AmqpClient, ConnectionFailedError, DeadlineExceededError, RequestRefusedError
from savedmodel_bakery.wire import amqp, schema
from savedmodel_bakery.wire.status import Code
from savedmodel_bakery.wire.tensors import decode_array, encode_tensor

MODEL = "half_plus_two"
Connect = Callable[..., AmqpClient]
StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """One for each test, as RabbitMQ 3.10 that was stopped fails who makes a quorum queue again after that."""
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as running:
        yield running


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    model_makers.half_plus(folder / MODEL, 1)
    return folder


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[ServerProcess]:
    flags = (f"--model_name={MODEL}", f"--model_base_path={models / MODEL}")
    with ServerProcess(*flags, log=models / "server.log") as running:
        yield running


@pytest.fixture
def start(broker: RabbitMQ, server: ServerProcess, tmp_path: Path) -> Iterator[StartWorker]:
    """Start workers before the server, which are ended with the test."""
    workers: list[WorkerProcess] = []

    def start(*options: str, url: str = broker.url(), target: str = server.target, wait: bool = True) -> WorkerProcess:
        log = tmp_path / f"worker{len(workers)}.log"
        asked = ("--server", target, "--model_name", MODEL, *options)
        workers.append(WorkerProcess(url, *asked, log=log, wait=wait))
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop()


@pytest.fixture
def connect(broker: RabbitMQ) -> Iterator[Connect]:
    """Make clients, which are closed at the end."""
    clients: list[AmqpClient] = []

    def connect(url: str = broker.url(), **options: object) -> AmqpClient:
        clients.append(AmqpClient(url, **{"model": MODEL, "timeout_s": 60.0, **options}))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def predict_request(x: object, signature: str = "", version: int | None = None, alias: str = "x") -> bytes:
    request = schema.PredictRequest()
    request.model_spec.name = MODEL
    request.model_spec.signature_name = signature
    if version is not None:
        request.model_spec.version.value = version
    encode_tensor(np.asarray(x), into=request.inputs[alias])
    content: bytes = request.SerializeToString()
    return content


def question(body: bytes, content_type: str = amqp.PROTOBUF, **headers: object) -> aio_pika.Message:
    return aio_pika.Message(body, content_type=content_type, headers=headers, delivery_mode=2)


def test_a_worker_with_a_model_of_its_own_answers(
    broker: RabbitMQ, models: Path, connect: Connect, tmp_path: Path
) -> None:
    options = ("--model_name", MODEL, "--model_base_path", str(models / MODEL), "--batch", "8")
    with WorkerProcess(broker.url(), *options, log=tmp_path / "log") as worker:
        asking = connect()
        prediction = asking.predict({"x": [1, 2, 5]})
        assert ([2.5, 3.0, 4.5], MODEL, 1) == (prediction.arrays["y"].tolist(), prediction.model, prediction.version)
        assert "AVAILABLE" == asking.status()[0].state
        assert [[("half", 3.5)]] == asking.classify_examples([{"x": 3.0}])
        large = np.arange(10_000_000, dtype=np.float32)
        assert np.array_equal(large / 2 + 2, asking.predict({"x": large}).arrays["y"])
        with pytest.raises(
            RequestRefusedError, match=r"^RESOURCE_EXHAUSTED: .*; a RabbitMQ message may have at most 134217728$"
        ):
            asking.predict({"x": np.zeros(1 << 25, np.float32)})
        with ThreadPoolExecutor(8) as pool:
            rows = list(pool.map(lambda x: connect().predict({"x": [x]}).arrays["y"].tolist(), range(24)))
        assert [[x / 2 + 2] for x in range(24)] == rows
        assert 0 == worker.stop()


def test_every_content_type_before_a_server(broker: RabbitMQ, start: StartWorker) -> None:
    start("--batch", "4")
    found = exchange(
        broker.url(),
        [
            question(predict_request(np.float32([1, 2]))),
            question(b'{"instances": [1.0, 2.0]}', amqp.JSON),
            question(b'{"signature_name": "two", "inputs": {"a": [3], "b": [1]}}', amqp.JSON, model=MODEL, version=1),
            question(b"\xff\xd8\xff", "image/jpeg", signature="text", input="s"),
        ],
    )
    assert [0, 0, 0, 0] == [answer.headers[amqp.STATUS] for answer in found]
    assert amqp.PROTOBUF == found[0].content_type
    assert "tensorflow.serving.PredictResponse" == found[0].type
    assert [2.5, 3.0] == list(schema.PredictResponse.FromString(found[0].body).outputs["y"].float_val)
    assert {"predictions": [2.5, 3.0]} == json.loads(found[1].body)
    assert {"outputs": {"sum": [4.0], "diff": [2.0]}} == json.loads(found[2].body)
    assert b'"b64": "/9j/"' in found[3].body


def test_direct_reply_to_works_for_callers_who_use_it(broker: RabbitMQ, start: StartWorker) -> None:
    start()
    (answer,) = exchange(broker.url(), [question(b'{"instances": [4.0]}', amqp.JSON)], direct=True)
    assert {"predictions": [4.0]} == json.loads(answer.body)


def test_mistakes_are_answered_and_what_nobody_can_read_is_a_dead_letter_too(
    broker: RabbitMQ, start: StartWorker
) -> None:
    start()
    wrong = [
        question(predict_request(np.float32([1]), signature="nope")),
        question(b'{"instances": ["one"]}', amqp.JSON),
        question(b"\xff" * 10),
        question(b"{", amqp.JSON),
        question(b"x", "text/plain"),
    ]
    found = exchange(broker.url(), wrong)
    codes = [Code(answer.headers[amqp.STATUS]) for answer in found]
    assert [Code.FAILED_PRECONDITION, *[Code.INVALID_ARGUMENT] * 4] == codes
    assert all(answer.headers[amqp.MESSAGE] for answer in found)
    assert {
        "INVALID_ARGUMENT: the body (10 bytes) is not a valid tensorflow.serving.PredictRequest": 1,
        'INVALID_ARGUMENT: unsupported content type "text/plain": must be application/x-protobuf, application/json '
        "or image/…": 1,
    }.items() <= status(broker.url(), "--reasons")["reasons"].items()
    wait_for_status(broker.url(), ready=0, dead=3)


def test_an_answer_that_nobody_can_get_is_a_dead_letter_that_can_be_put_back(
    broker: RabbitMQ, start: StartWorker, connect: Connect
) -> None:
    worker = start()
    nowhere, unwanted = question(predict_request(np.float32([6]))), question(predict_request(np.float32([8])))
    nowhere.reply_to = "answers"
    publish(broker.url(), nowhere, unwanted)
    wait_for_status(broker.url(), ready=0, dead=2)
    assert {
        'reply queue "answers" does not exist': 1,
        "INVALID_ARGUMENT: the message has no reply_to": 1,
    } == status(broker.url(), "--reasons")["reasons"]
    asking = connect()
    assert [] == list(asking.results("answers", idle_s=0.1))  # which makes it
    assert "2 requeued\n" == command(broker.url(), "requeue")
    assert [[5.0]] == [found.arrays["y"].tolist() for _, found in asking.results("answers", idle_s=2)]
    wait_for_status(broker.url(), ready=0, dead=1)
    assert 0 == worker.stop()


def test_what_ends_its_workers_is_given_up_and_its_caller_told(broker: RabbitMQ, start: StartWorker) -> None:
    """The question stands for one that brings a worker down: the test kills whoever has it in hand."""
    with holding_server() as (target, _), ThreadPoolExecutor() as pool:
        start("--delivery_limit", "2").stop()
        asked = pool.submit(exchange, broker.url(), [question(predict_request(np.float32([1])))])
        wait_for_status(broker.url(), ready=1)
        for _ in range(2):
            worker = start("--delivery_limit", "2", target=target)
            wait_for_status(broker.url(), ready=0)
            worker.kill()
            wait_for_status(broker.url(), ready=1)
        start("--delivery_limit", "2")
        (answer,) = asked.result(60)
    assert Code.ABORTED == answer.headers[amqp.STATUS]
    why = (
        "the message was delivered 2 times without a reply; it may crash workers, and was moved to the "
        "dead-letter queue"
    )
    assert why == answer.headers[amqp.MESSAGE]
    assert {f"ABORTED: {why}": 1} == status(broker.url(), "--reasons")["reasons"]


def test_what_ends_its_workers_takes_no_other_with_it(broker: RabbitMQ, start: StartWorker) -> None:
    """The server that a worker asks kills it, over one of the questions that it has in hand."""
    worst = predict_request(np.float32([99]))
    workers: list[WorkerProcess] = []

    def answer(request: bytes) -> bytes:
        x = decode_array(schema.PredictRequest.FromString(request).inputs["x"])
        if x.tolist() == [99]:
            workers[-1].process.kill()
        return b""

    with answering_server(answer) as target, ThreadPoolExecutor() as pool:
        start("--delivery_limit", "3").stop()
        bodies = [predict_request(np.float32([number])) for number in range(15)]
        bodies.insert(3, worst)
        asked = pool.submit(exchange, broker.url(), [question(body) for body in bodies])
        wait_for_status(broker.url(), ready=16)
        for _ in range(3):
            workers.append(start("--delivery_limit", "3", target=target, wait=False))
            assert -signal.SIGKILL == workers[-1].process.wait(60)
        start("--delivery_limit", "3", target=target)
        codes = [Code(found.headers[amqp.STATUS]) for found in asked.result(60)]
    assert Code.ABORTED == codes.pop(3)
    assert [Code.OK] * 15 == codes
    wait_for_status(broker.url(), ready=0, dead=1)


def test_a_server_that_is_away_is_waited_for_and_heartbeats_go_on(
    broker: RabbitMQ, models: Path, start: StartWorker, tmp_path: Path
) -> None:
    port = free_port()
    worker = start(url=broker.url(options="?heartbeat=1"), target=f"127.0.0.1:{port}")
    before = broker.control("list_connections", "pid")
    asked: list[object] = []
    message = question(predict_request(np.float32([8])))
    caller = threading.Thread(target=lambda: asked.extend(exchange(broker.url(), [message])))
    caller.start()
    worker.wait_for_log("retrying 1 messages", 4)  # more than three heartbeats, after which a broker hangs up
    flags = (f"--model_name={MODEL}", f"--model_base_path={models / MODEL}", f"--port={port}")
    with ServerProcess(*flags, log=tmp_path / "server.log"):
        caller.join(60)
    (answer,) = asked
    assert [6.0] == list(schema.PredictResponse.FromString(answer.body).outputs["y"].float_val)
    assert before == broker.control("list_connections", "pid")
    assert 1 == worker.log.read_text().count("Consuming queue")


def test_sigterm_finishes_what_is_in_hand(broker: RabbitMQ, start: StartWorker) -> None:
    """One is with the server, two wait in the worker; the fourth was never taken."""
    with holding_server() as (target, released), ThreadPoolExecutor() as pool:
        worker = start("--calls", "1", "--prefetch", "3", target=target)
        released.set()
        exchange(broker.url(), [question(predict_request(np.float32([1])))])  # the first one is taken alone
        released.clear()
        questions = [question(predict_request(np.float32([1]))) for _ in range(4)]
        asked = pool.submit(exchange, broker.url(), questions)
        wait_for_status(broker.url(), ready=1)
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for_log("Finishing 3 prefetched messages")
        released.set()
        assert 0 == worker.process.wait(60)
        assert "unprocessed" not in worker.log.read_text()
        assert 1 == status(broker.url())["ready"]
        start(target=target)
        assert 4 == len(asked.result(60))
    assert {"ready": 0, "dead": 0}.items() <= status(broker.url()).items()


def test_purge_tells_every_waiting_caller(broker: RabbitMQ, start: StartWorker, connect: Connect) -> None:
    start().stop()

    def ask(_: int) -> str:
        with pytest.raises(RequestRefusedError) as caught:
            connect().status()
        return str(caught.value)

    with ThreadPoolExecutor(5) as pool:
        asked = [pool.submit(ask, number) for number in range(5)]
        wait_for_status(broker.url(), ready=5)
        assert "5 purged\n" == command(broker.url(), "purge")
        assert [f'ABORTED: queue "{QUEUE}" was purged'] * 5 == [one.result(30) for one in asked]
    assert f"{QUEUE}\tready 0\tconsumers 0\tdead letters 0\n" == command(broker.url(), "status")


def test_a_purge_ends_a_job_over_many_photos(broker: RabbitMQ, start: StartWorker, tmp_path: Path) -> None:
    start().stop()
    job = ("classify", str(tmp_path), "--out", str(tmp_path / "rows.jsonl"))
    asked = [sys.executable, "-m", "savedmodel_bakery.client", "--format", "AMQP", "-t", broker.url(), *job]
    with subprocess.Popen(asked, stderr=subprocess.PIPE, text=True) as asking:
        wait_for_status(broker.url(), ready=1)
        assert "1 purged\n" == command(broker.url(), "purge")
        _, complaint = asking.communicate(timeout=60)
    assert (1, True) == (asking.returncode, "was purged" in complaint)
    assert 0 == status(broker.url())["ready"]


def test_what_was_submitted_is_answered_some_time_and_outlives_the_broker(
    broker: RabbitMQ, start: StartWorker, connect: Connect
) -> None:
    worker = start()
    worker.stop()
    sent = [connect().submit({"x": np.float32([x])}, result_queue="results") for x in (0, 2, 4)]
    sent.append(connect().submit({"x": np.float32([0])}, result_queue="results", signature="nope"))
    broker.stop()
    broker.start()
    assert 4 == status(broker.url())["ready"]
    start()
    found = dict(connect().results("results", idle_s=3))
    assert [[2.0], [3.0], [4.0]] == [found[one].arrays["y"].tolist() for one in sent[:3]]
    assert isinstance(found[sent[3]], RequestRefusedError)
    assert [] == list(connect().results("results", idle_s=0.1))


def test_workers_and_clients_come_back_when_the_broker_does(
    broker: RabbitMQ, start: StartWorker, connect: Connect
) -> None:
    worker = start()
    asking = connect()
    assert [2.0] == asking.predict({"x": [0]}).arrays["y"].tolist()
    broker.stop()
    with pytest.raises(ConnectionFailedError):
        asking.predict({"x": [0]})
    worker.wait_for_log("reconnecting in")
    broker.start()
    worker.wait_for_log("Consuming queue", 2)
    assert [2.5] == asking.predict({"x": [1]}).arrays["y"].tolist()


def test_results_that_are_cut_off_are_no_end(broker: RabbitMQ, start: StartWorker, connect: Connect) -> None:
    start()
    asking = connect()
    asking.submit({"x": np.float32([0])}, result_queue="results")
    arriving = asking.results("results", idle_s=60)
    assert [2.0] == next(arriving)[1].arrays["y"].tolist()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(next, arriving, None)
        broker.stop()
        with pytest.raises(ConnectionFailedError, match=r"^the connection to the broker 127\.0\.0\.1:\d+ was lost"):
            waiting.result(30)
    broker.start()


@pytest.mark.timeout(120)
def test_a_broker_that_is_short_of_memory_holds_up_no_caller_beyond_his_time(
    broker: RabbitMQ, start: StartWorker, connect: Connect
) -> None:
    """RabbitMQ reads no further from a connection that publishes, until it has memory again."""
    start()
    asking = connect(timeout_s=3.0)
    inputs = {"x": np.float32([0])}
    assert [2.0] == asking.predict(inputs).arrays["y"].tolist()
    broker.control("set_vm_memory_high_watermark", "absolute", "1MB")
    try:
        time.sleep(2)  # it looks at its memory once a second
        for ask in (
            lambda: asking.predict(inputs),
            lambda: asking.submit(inputs, result_queue="results"),
            lambda: list(asking.results("results", idle_s=0.1)),
        ):
            with pytest.raises(DeadlineExceededError, match="within 3 s"):
                ask()
        connect(timeout_s=3.0).close()
    finally:
        broker.control("set_vm_memory_high_watermark", "absolute", "1GB")
    assert [2.0] == connect().predict(inputs).arrays["y"].tolist()


def test_a_queue_that_was_deleted_is_made_again(broker: RabbitMQ, start: StartWorker, connect: Connect) -> None:
    worker = start()
    delete_queues(broker.url(), QUEUE, f"{QUEUE}.dead")
    worker.wait_for_log("Consuming queue", 2)
    assert f"queue {QUEUE} was deleted" in worker.log.read_text()
    assert [2.5] == connect().predict({"x": [1]}).arrays["y"].tolist()


def test_what_expires(broker: RabbitMQ, start: StartWorker, connect: Connect) -> None:
    """A question whose caller waits no longer, and an answer that nobody fetches."""
    start().stop()
    with pytest.raises(DeadlineExceededError, match="within 1 s"):
        connect(timeout_s=1.0).status()
    wait_for_status(broker.url(), ready=0, dead=1)
    assert {"expired": 1} == status(broker.url(), "--reasons")["reasons"]
    for options, left in (("--expiration", "60"), 1), (("--expiration", "1"), 0):
        worker = start(*options)
        asking = connect()
        asking.submit({"x": np.float32([1])}, result_queue="results")
        wait_for_status(broker.url(), ready=0)
        worker.stop()
        time.sleep(2)  # for longer than it is kept
        assert left == len(list(asking.results("results", idle_s=1)))


def test_a_queue_that_is_there_otherwise_is_refused(start: StartWorker) -> None:
    start().stop()
    worker = start("--delivery_limit", "7", wait=False)
    assert 1 == worker.process.wait(60)
    assert "FAILED_PRECONDITION" in worker.log.read_text()
    assert "x-delivery-limit" in worker.log.read_text()


def test_users_need_few_permissions_and_their_passwords_are_shown_nowhere(
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
    shown = worker.log.read_text()
    for wrong in (
        broker.url("caller", f"{secret}!"),
        broker.url("nobody", secret),
        broker.url("caller", secret) + "nowhere",
    ):
        with pytest.raises(RequestRefusedError) as caught:
            connect(wrong).status()
        ended = subprocess.run(
            [sys.executable, "-m", "savedmodel_bakery.serving", "amqp", "status", "--url", wrong],
            capture_output=True,
            text=True,
            check=False,
        )
        assert 1 == ended.returncode
        shown += str(caught.value) + repr(caught.value) + ended.stdout + ended.stderr
    broker.add_user("reader", secret, "^$", "^$", ".*")
    asking = connect(broker.url("reader", secret))
    with pytest.raises(RequestRefusedError, match=r"^PERMISSION_DENIED"):
        asking.status()
    while "reader" in broker.control("list_connections", "user"):  # what was opened in vain is closed
        time.sleep(0.2)
    denied = start(url=broker.url("caller", secret), wait=False)
    assert 1 == denied.process.wait(60)
    assert "PERMISSION_DENIED" in denied.log.read_text()
    assert secret not in shown + denied.log.read_text()


def test_tls_with_certificates_of_both_sides(server: ServerProcess, tmp_path: Path) -> None:
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
            with AmqpClient(url, model=MODEL) as asking:
                assert [2.5] == asking.predict({"x": [1]}).arrays["y"].tolist()
            for wrong, why in ((plain, "is not trusted"), (trusted, "127.0.0.1")):
                with (
                    AmqpClient(wrong, model=MODEL) as asking,
                    pytest.raises(ConnectionFailedError, match=why),
                ):
                    asking.predict({"x": [1]})


def test_the_command_line_asks_and_fetches(broker: RabbitMQ, start: StartWorker, tmp_path: Path) -> None:
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
