"""`bakery amqp status`, `purge` and `requeue`: what an operator does with the queues of workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

import click

from savedmodel_bakery import log
from savedmodel_bakery.interrupts import exit_on_interrupt
from savedmodel_bakery.serving.commands.amqp_options import broker_options, result_queue_option

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection

    from savedmodel_bakery.client.transports.amqp_broker import Broker
    from savedmodel_bakery.serving.amqp.publisher import Publisher

_TIMEOUT_S = 30.0
_OPERATOR = "bakery operator"
Result = TypeVar("Result")


@click.command(
    "status", epilog="\b\nExamples:\n  bakery amqp status\n  bakery amqp status --queue photos --reasons --json\n"
)
@broker_options
@click.option("--reasons", is_flag=True, help="Count the dead letters by reason; reads at most the first 1000.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def print_status(queue: str, url: Broker, reasons: bool, as_json: bool) -> None:
    """Print the number of waiting messages, workers and dead letters."""
    from savedmodel_bakery.serving.amqp import queues

    status = _run(url, lambda connection: queues.status(connection, queue, with_reasons=reasons))
    if as_json:
        click.echo(json.dumps(asdict(status), ensure_ascii=False))
        return
    click.echo(f"{status.queue}\tready {status.ready}\tconsumers {status.consumers}\tdead letters {status.dead}")
    for reason, count in status.reasons.items():
        click.echo(f"{count}\t{log.escape(' '.join(reason.split()))}")


@click.command("purge", epilog="\b\nExample:\n  bakery amqp purge --queue photos\n")
@broker_options
@result_queue_option
def purge_queue(queue: str, url: Broker, result_queues: tuple[str, ...]) -> None:
    """Empty the queue; every waiting caller gets the error ABORTED."""
    from savedmodel_bakery.serving.amqp import queues

    count = _run_publishing(
        url, lambda connection, publisher: queues.purge(connection, publisher, queue, result_queues)
    )
    click.echo(f"{count} purged")


@click.command("requeue", epilog="\b\nExample:\n  bakery amqp requeue --queue photos\n")
@broker_options
def requeue_dead_letters(queue: str, url: Broker) -> None:
    """Move the dead letters back to the queue."""
    from savedmodel_bakery.serving.amqp import queues

    count = _run_publishing(url, lambda connection, publisher: queues.requeue(connection, publisher, queue))
    click.echo(f"{count} requeued")


def _run_publishing(broker: Broker, operation: Callable[[AbstractConnection, Publisher], Awaitable[Result]]) -> Result:
    """Run an operation that publishes messages too, on new connections."""
    from savedmodel_bakery.serving.amqp.publisher import Publisher

    async def run(connection: AbstractConnection) -> Result:
        async with Publisher(broker, _OPERATOR, at_once=1) as publisher:
            return await operation(connection, publisher)

    return _run(broker, run)


def _run(broker: Broker, operation: Callable[[AbstractConnection], Awaitable[Result]]) -> Result:
    """Run an operation on a new connection."""

    async def run() -> Result:
        async with await broker.connect(_OPERATOR, timeout_s=_TIMEOUT_S) as connection:
            with broker.translate_errors():
                return await operation(connection)

    with exit_on_interrupt():  # asyncio leaves half-made connections behind, which complain
        return asyncio.run(run())
