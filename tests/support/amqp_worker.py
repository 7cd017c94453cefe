"""A real worker in a process of its own, commands about its queue, and a caller that knows AMQP alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import aio_pika
import grpc

START_LIMIT_S = 90
QUEUE = "bakery.predict"


class WorkerProcess:
    """`python -m serving amqp`, from start to end.

    Args:
        url: of the broker.
        options: further ones.
        log: file for stdout and stderr.
        wait: whether to return only when it works.
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
        """Return when the log has `text` so often; its end, or a long silence, is an error with the log."""
        end = time.monotonic() + START_LIMIT_S
        while self.log.read_text().count(text) < count:
            assert self.process.poll() is None, f"the worker ended:\n{self.log.read_text()}"
            assert time.monotonic() < end, f"{text!r} is not in the log:\n{self.log.read_text()}"
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as the kernel would, out of memory."""
        self.process.kill()
        self.process.wait()

    def stop(self, limit_s: float = 40) -> int:
        """Send SIGTERM and return the exit status."""
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
    """What a subcommand of `python -m serving amqp` prints."""
    full = [sys.executable, "-m", "savedmodel_bakery.serving", "amqp", *arguments, "--url", url]
    return subprocess.run(full, check=True, capture_output=True, text=True, timeout=60).stdout


def status(url: str, *options: str) -> dict[str, Any]:
    """What `status` prints."""
    found: dict[str, Any] = json.loads(command(url, "status", "--json", *options))
    return found


def wait_for_status(url: str, **wanted: int) -> None:
    """Return when the queue is so; a long wait is an error."""
    end = time.monotonic() + START_LIMIT_S
    while not wanted.items() <= (found := status(url)).items():
        assert time.monotonic() < end, f"{found}, wanted {wanted}"
        time.sleep(0.2)


def exchange(url: str, messages: Sequence[aio_pika.Message], *, direct: bool = False) -> list[Any]:
    """Publish messages, and wait for as many answers, which come by correlation id.

    Args:
        url: of the broker.
        messages: their reply_to is filled in.
        direct: by direct reply-to (rabbitmq.com/docs/direct-reply-to) rather than to a queue.
    """

    async def run() -> list[Any]:
        connection = await aio_pika.connect(url)
        channel = await connection.channel()
        answers: dict[str | None, asyncio.Future[Any]] = {}
        loop = asyncio.get_running_loop()

        async def receive(answer: aio_pika.abc.AbstractIncomingMessage) -> None:
            answers[answer.correlation_id].set_result(answer)

        if direct:
            queue = await channel.get_queue("amq.rabbitmq.reply-to", ensure=False)
        else:
            queue = await channel.declare_queue(exclusive=True)
        await queue.consume(receive, no_ack=True)
        for number, message in enumerate(messages):
            message.reply_to, message.correlation_id = queue.name, str(number)
            answers[str(number)] = loop.create_future()
            await channel.default_exchange.publish(message, QUEUE, mandatory=True)
        found = await asyncio.wait_for(asyncio.gather(*answers.values()), 60)
        await connection.close()
        return found

    return asyncio.run(run())


def delete_queues(url: str, *names: str) -> None:
    """Delete queues, with what is in them."""

    async def run() -> None:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            for name in names:
                await channel.queue_delete(name)

    asyncio.run(run())


@contextlib.contextmanager
def answering_server(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """A model server that has Predict alone, answered by a function on serialized messages; its target."""
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


@contextlib.contextmanager
def holding_server() -> Iterator[tuple[str, threading.Event]]:
    """A model server that answers Predict, emptily, only when it is let; its target, and the event that lets it."""
    released = threading.Event()

    def answer(_: bytes) -> bytes:
        released.wait(START_LIMIT_S)
        return b""

    with answering_server(answer) as target:
        try:
            yield target, released
        finally:
            released.set()


def publish(url: str, *messages: aio_pika.Message) -> None:
    """Publish messages as they are."""

    async def run() -> None:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel(on_return_raises=True)
            for message in messages:
                await channel.default_exchange.publish(message, QUEUE, mandatory=True)

    asyncio.run(run())
