"""The AMQP worker in its own process, its commands, model servers in the test's process, and a plain AMQP caller."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import aio_pika
import grpc
import numpy as np
from server_process import free_port
from waiting import wait_until

from savedmodel_bakery.serving.amqp import queues
from savedmodel_bakery.wire import amqp, schema
from savedmodel_bakery.wire.tensors import encode_tensor

START_LIMIT_S = 90
QUEUE = "bakery.predict"


class WorkerProcess:
    """`python -m serving amqp`, from start to end.

    Args:
        url: of the broker.
        options: further options.
        log: file for stdout and stderr.
        wait: return only when the worker consumes its queue.
    """

    def __init__(self, url: str, *options: str, log: Path, wait: bool = True) -> None:
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "savedmodel_bakery.serving", "amqp", "--url", url, *options],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        if wait:
            self.wait_for_log("Consuming queue")

    def wait_for_log(self, text: str, count: int = 1) -> None:
        """Return when the log contains `text` this many times; fail with the log if the worker exits first."""

        def is_logged() -> bool:
            has_exited = self.process.poll() is not None  # before the log is read, which is then complete
            is_complete = self.log.read_text().count(text) >= count
            assert is_complete or not has_exited, f"the worker exited:\n{self.log.read_text()}"
            return is_complete

        wait_until(
            is_logged,
            timeout_s=START_LIMIT_S,
            interval_s=0.05,
            describe=lambda: f"{text!r} is not in the log:\n{self.log.read_text()}",
        )

    def kill(self) -> None:
        """Send SIGKILL, as the kernel does when memory runs out."""
        self.process.kill()
        self.process.wait()

    def stop(self, limit_s: float = 40) -> int:
        """Send SIGTERM and return the exit code."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def command(url: str, *arguments: str) -> str:
    """Run a subcommand of `python -m serving amqp` and return what it prints."""
    full = [sys.executable, "-m", "savedmodel_bakery.serving", "amqp", *arguments, "--url", url]
    return subprocess.run(full, check=True, capture_output=True, text=True, timeout=60).stdout


def status(url: str, *options: str) -> dict[str, Any]:
    """Return the JSON object that `status` prints."""
    document: dict[str, Any] = json.loads(command(url, "status", "--json", *options))
    return document


def wait_for_status(url: str, **expected: int) -> None:
    """Return when the queue has these counts: `ready`, `consumers`, `dead`."""

    async def read() -> dict[str, Any]:
        async with await aio_pika.connect(url) as connection:
            return asdict(await queues.status(connection, QUEUE, with_reasons=False))

    latest: dict[str, Any] = {}

    def is_reached() -> bool:
        latest.update(asyncio.run(read()))
        return expected.items() <= latest.items()

    wait_until(is_reached, timeout_s=START_LIMIT_S, interval_s=0.1, describe=lambda: f"{latest}, expected {expected}")


def message_count(url: str, queue: str) -> int:
    """Return the number of messages in a queue that wait for a consumer."""

    async def read() -> int:
        async with await aio_pika.connect(url) as connection:
            declared = await (await connection.channel()).declare_queue(queue, passive=True)
            return declared.declaration_result.message_count or 0

    return asyncio.run(read())


def exchange(url: str, messages: Sequence[aio_pika.Message], *, direct: bool = False) -> list[Any]:
    """Publish messages and return their replies, in the order of the messages.

    Args:
        url: of the broker.
        messages: without `reply_to`, which is set here.
        direct: use direct reply-to (rabbitmq.com/docs/direct-reply-to) instead of a queue.
    """

    async def run() -> list[Any]:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            replies: dict[str | None, asyncio.Future[Any]] = {}
            loop = asyncio.get_running_loop()

            async def receive(reply: aio_pika.abc.AbstractIncomingMessage) -> None:
                future = replies[reply.correlation_id]
                if not future.done():  # the first reply counts
                    future.set_result(reply)

            if direct:
                queue = await channel.get_queue("amq.rabbitmq.reply-to", ensure=False)
            else:
                queue = await channel.declare_queue(exclusive=True)
            await queue.consume(receive, no_ack=True)
            for number, message in enumerate(messages):
                message.reply_to, message.correlation_id = queue.name, str(number)
                replies[str(number)] = loop.create_future()
                await channel.default_exchange.publish(message, QUEUE, mandatory=True)
            return await asyncio.wait_for(asyncio.gather(*replies.values()), 120)

    return asyncio.run(run())


def publish(url: str, *messages: aio_pika.Message) -> None:
    """Publish messages without changing them."""

    async def run() -> None:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel(on_return_raises=True)
            for message in messages:
                await channel.default_exchange.publish(message, QUEUE, mandatory=True)

    asyncio.run(run())


def delete_queues(url: str, *names: str) -> None:
    """Delete queues and their messages."""

    async def run() -> None:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            for name in names:
                await channel.queue_delete(name)

    asyncio.run(run())


@contextlib.contextmanager
def answering_server(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """Run a model server whose only method is Predict, a function on serialized messages; yield its target."""
    handler = {"Predict": grpc.unary_unary_rpc_method_handler(lambda request, _: answer(request))}
    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool)
        service = grpc.method_handlers_generic_handler("tensorflow.serving.PredictionService", handler)
        server.add_generic_rpc_handlers([service])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(0).wait()


_CRASHING_SERVER = """
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
import grpc

def answer(request, _):
    time.sleep(0.1)  # so that calls overlap
    if {poison!r} in request:
        os._exit(1)
    return b""

server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
handlers = dict(Predict=grpc.unary_unary_rpc_method_handler(answer))
service = "tensorflow.serving.PredictionService"
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
server.add_insecure_port("127.0.0.1:{port}")
server.start()
server.wait_for_termination()
"""


@contextlib.contextmanager
def crashing_server(poison: bytes) -> Iterator[tuple[str, list[int]]]:
    """Run a model server that a Predict with `poison` in it ends, and that is then started again.

    Yields:
        Its target, and the exit codes of its processes so far.
    """
    port = free_port()
    program = [sys.executable, "-c", _CRASHING_SERVER.format(poison=poison, port=port)]
    exit_codes: list[int] = []
    processes = [subprocess.Popen(program)]
    is_over = threading.Event()

    def supervise() -> None:
        while not is_over.is_set():
            exit_codes.append(processes[-1].wait())
            if not is_over.is_set():
                processes.append(subprocess.Popen(program))

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    try:
        yield f"127.0.0.1:{port}", exit_codes
    finally:
        is_over.set()
        processes[-1].kill()
        supervisor.join()


@dataclass(frozen=True)
class HoldingServer:
    """A model server that holds calls of Predict until they may return, and then answers without outputs.

    Attributes:
        target: `host:port`.
        called: each call that arrives increments it.
        released: set it to let calls return.
    """

    target: str
    called: threading.Semaphore
    released: threading.Event


@contextlib.contextmanager
def holding_server() -> Iterator[HoldingServer]:
    """Run one, and let its calls return at the end."""
    called, released = threading.Semaphore(0), threading.Event()

    def answer(_: bytes) -> bytes:
        called.release()
        released.wait(START_LIMIT_S)
        return b""

    with answering_server(answer) as target:
        try:
            yield HoldingServer(target, called, released)
        finally:
            released.set()


def predict_request(x: object, signature: str = "") -> bytes:
    """Return a serialized PredictRequest for half_plus_two."""
    request = schema.PredictRequest()
    request.model_spec.name = "half_plus_two"
    request.model_spec.signature_name = signature
    encode_tensor(np.asarray(x, np.float32), into=request.inputs["x"])
    content: bytes = request.SerializeToString()
    return content


def make_message(body: bytes, content_type: str = amqp.PROTOBUF, **headers: object) -> aio_pika.Message:
    """Return a persistent message."""
    return aio_pika.Message(body, content_type=content_type, headers=headers, delivery_mode=2)
