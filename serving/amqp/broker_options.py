"""The options of `bakery amqp` for the broker and its queues. Imports heavy modules when needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from savedmodel_bakery.extras import naming_extras
from savedmodel_bakery.serving.amqp.reply_queues import DEFAULT_PATTERNS, parse_pattern
from savedmodel_bakery.wire.amqp import DEFAULT_QUEUE

if TYPE_CHECKING:
    from savedmodel_bakery.client.transports.amqp_broker import Broker

_Command = TypeVar("_Command", bound=Callable[..., Any])


def broker_options(command: _Command) -> _Command:
    """Give a command `--queue` and `--url`."""
    for option in (
        click.option(
            "--queue", default=DEFAULT_QUEUE, envvar="BAKERY_AMQP_QUEUE", show_envvar=True, show_default=True,
            metavar="NAME", help="Queue that callers publish to.",
        ),
        click.option(
            "--url", default="amqp://guest:guest@127.0.0.1/", envvar="BAKERY_AMQP_URL", show_envvar=True,
            show_default=True, callback=_parse_broker, metavar="URL",
            help="The broker: amqp[s]://USER:PASSWORD@HOST:PORT/VHOST, with ?cafile=…&certfile=…&keyfile=… for TLS.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def result_queue_option(command: _Command) -> _Command:
    """Give a command `--result-queue`."""
    return click.option(
        "--result-queue", "result_queues", multiple=True, default=DEFAULT_PATTERNS, show_default=True,
        callback=_parse_result_queues, metavar="NAME|PREFIX*",
        help="Queue that replies may go to, beside those with generated names (amq.*, amq_*). Repeatable.",
    )(command)  # fmt: skip


def _parse_result_queues(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    try:
        return tuple(parse_pattern(value) for value in values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


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
