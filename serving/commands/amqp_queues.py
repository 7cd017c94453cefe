"""The options of `bakery amqp`, and its commands for queues: `status`, `purge`, `requeue` and `results`."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from savedmodel_bakery import log
from savedmodel_bakery.client.commands.predict import print_results, results_options
from savedmodel_bakery.client.credentials import read_token
from savedmodel_bakery.client.servers import Server, parse_server, select_tls
from savedmodel_bakery.defaults import TOKEN_VARIABLE
from savedmodel_bakery.exits import as_usage_error
from savedmodel_bakery.extras import naming_extras
from savedmodel_bakery.groups import option_group
from savedmodel_bakery.interrupts import exit_on_interrupt
from savedmodel_bakery.wire.amqp import DEFAULT_QUEUE

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection

    from savedmodel_bakery.client.transports.amqp_broker import Broker
    from savedmodel_bakery.serving.amqp.publisher import Publisher

logger = logging.getLogger(__name__)

_TIMEOUT_S = 30.0
_OPERATOR = "bakery operator"
Result = TypeVar("Result")


def _parse_result_queues(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    for pattern in values:
        if not pattern or "*" in pattern[:-1]:
            raise click.BadParameter(f'invalid pattern "{pattern}": must be NAME or PREFIX*')
    return values


def naming_missing_extras(context: click.Context) -> AbstractContextManager[None]:
    """Name the extras that a command needs: a worker that loads a model itself needs `serve` too."""
    loads_model = context.info_name == "work" and context.params.get("server") is None
    return naming_extras("amqp", "amqp", *(["serve"] if loads_model else []))


def _parse_broker(context: click.Context, _parameter: click.Parameter, value: str) -> Broker:
    with naming_missing_extras(context):
        from savedmodel_bakery.client.transports.amqp_broker import Broker

    try:
        return Broker.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


_url_option = partial(
    click.option, "--url", default="amqp://guest:guest@127.0.0.1/", envvar="BAKERY_AMQP_URL", show_envvar=True,
    show_default=True, metavar="URL",
    help="The broker: amqp[s]://USER:PASSWORD@HOST:PORT/VHOST, with ?cafile=…&certfile=…&keyfile=… for TLS.",
)  # fmt: skip
broker_options = option_group(
    _url_option(callback=_parse_broker),
    click.option(
        "--queue", default=DEFAULT_QUEUE, envvar="BAKERY_AMQP_QUEUE", show_envvar=True, show_default=True,
        metavar="NAME", help="Queue that callers publish to.",
    ),
)  # fmt: skip

result_queue_option = click.option(
    "--result-queue", "result_queues", multiple=True, default=("results*",), show_default=True,
    callback=_parse_result_queues, metavar="NAME|PREFIX*",
    help="Queue that replies may go to, beside those with generated names (amq.*, amq_*). Repeatable.",
)  # fmt: skip

_FILE = click.Path(exists=True, dir_okay=False, readable=True)
server_options = option_group(
    click.option(
        "--server",
        is_eager=True,  # the callback of --url reads it
        metavar="[grpcs://]HOST[:PORT]",
        help="Call this model server over gRPC instead; the default port is 8500.",
    ),
    click.option("--tls", is_flag=True, help="Encrypt the connection to --server, as grpcs:// does."),
    click.option(
        "--ca", type=_FILE, show_default="public authorities", help="PEM file of the authorities to trust, with TLS."
    ),
    click.option("--cert", type=_FILE, help="PEM file of the worker's certificate, with TLS."),
    click.option("--key", type=_FILE, show_default="in --cert", help="PEM file of its private key."),
    click.option(
        "--token-file", metavar="FILE", help=f"File with the token for --server. Or set {TOKEN_VARIABLE} to the token."
    ),
)
"""Gives a command the options for the model server; their values are the arguments of `describe_server`."""


def describe_server(
    server: str | None, *, tls: bool, ca: str | None, cert: str | None, key: str | None, token_file: str | None
) -> Server | None:
    """Return the model server of the options; None without `--server`. Warns if a token is sent unencrypted."""
    if server is None:
        for name, value in (("tls", tls), ("ca", ca), ("cert", cert), ("key", key), ("token-file", token_file)):
            if value:
                raise click.UsageError(f"--{name} needs --server, the model server that it is for")
        return None
    with as_usage_error(ValueError):
        described = parse_server(
            server,
            transport="grpc",
            tls=select_tls(server, is_on=tls, ca=ca, cert=cert, key=key),
            token=read_token(token_file),
        )
    if described.exposes_token:
        logger.warning("%s is sent the token without encryption: use --tls", described.endpoints[0].address)
    return described


@click.command(
    "status", epilog="\b\nExamples:\n  bakery amqp status\n  bakery amqp status --queue photos --reasons --json\n"
)
@broker_options
@click.option("--reasons", is_flag=True, help="Count the dead letters by reason; reads at most the first 1000.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def print_status(queue: str, url: Broker, reasons: bool, as_json: bool) -> None:
    """Print the number of waiting messages, workers and dead letters."""
    from savedmodel_bakery.serving.amqp import queues

    status = _run(url, lambda connection, _: queues.status(connection, queue, with_reasons=reasons))
    if as_json:
        click.echo(json.dumps(asdict(status), ensure_ascii=False))
        return
    click.echo(f"{status.queue}\tready {status.ready}\tconsumers {status.consumers}\tdead letters {status.dead}")
    for reason, count in status.reasons.items():
        click.echo(f"{count}\t{log.escape(' '.join(reason.split()))}")


@click.command(
    "results",
    epilog="\b\nExample:\n  bakery amqp results labels --url amqps://caller:secret@broker.example/\n",
)
@results_options
@_url_option()
@click.pass_context
def print_replies(context: click.Context, result_queue: str, idle_s: float, url: str) -> None:
    """Print the replies in a result queue, and remove them from it.

    Prints one JSON object per line: the id of the request, and its outputs or its error.
    """
    from savedmodel_bakery.client.amqp_clients import AmqpClient

    with naming_missing_extras(context), as_usage_error(ValueError):
        client = AmqpClient(url)
    print_results(client, result_queue, idle_s)


@click.command("purge", epilog="\b\nExample:\n  bakery amqp purge --queue photos\n")
@broker_options
@result_queue_option
def purge_queue(queue: str, url: Broker, result_queues: tuple[str, ...]) -> None:
    """Empty the queue; every waiting caller gets the error ABORTED."""
    from savedmodel_bakery.serving.amqp import queues

    count = _run(url, lambda connection, publisher: queues.purge(connection, publisher, queue, result_queues))
    click.echo(f"{count} purged")


@click.command("requeue", epilog="\b\nExample:\n  bakery amqp requeue --queue photos\n")
@broker_options
def requeue_dead_letters(queue: str, url: Broker) -> None:
    """Move the dead letters back to the queue."""
    from savedmodel_bakery.serving.amqp import queues

    count = _run(url, lambda connection, publisher: queues.requeue(connection, publisher, queue))
    click.echo(f"{count} requeued")


def _run(broker: Broker, operation: Callable[[AbstractConnection, Publisher], Awaitable[Result]]) -> Result:
    """Run an operation on a new connection; the publisher opens its own when it is used."""
    from savedmodel_bakery.serving.amqp.publisher import Publisher

    async def run() -> Result:
        async with await broker.connect(_OPERATOR, timeout_s=_TIMEOUT_S) as connection:
            with broker.translate_errors():
                async with Publisher(broker, _OPERATOR, at_once=1) as publisher:
                    return await operation(connection, publisher)

    with exit_on_interrupt():  # asyncio leaves half-made connections behind, which complain
        return asyncio.run(run())
