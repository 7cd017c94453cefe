"""`python -m serving amqp`: parse, call one function, print, exit. What is heavy is imported where it is needed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from savedmodel_bakery.client.endpoints import MAX_TIMEOUT_S, Endpoint
from savedmodel_bakery.client.errors import ClientError, ConnectionFailedError
from savedmodel_bakery.wire.amqp import DEFAULT_QUEUE
from savedmodel_bakery.wire.status import StatusError

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel

    from savedmodel_bakery.client.transports.amqp_broker import Broker

EXIT_REFUSED = 1
EXIT_NO_CONNECTION = 3
EXIT_INTERRUPTED = 130
_TIMEOUT_S = 30.0

_Command = TypeVar("_Command", bound=Callable[..., Any])
Result = TypeVar("Result")

EXAMPLES = """
\b
Examples:
  python -m serving amqp --model_base_path saved_model/efficientnet_lite0
  python -m serving amqp --url amqps://worker:secret@broker.example/ --server models.example:8500
  python -m serving amqp status
  python -m serving amqp purge

\b
Exit codes: 0 done, 1 refused, 2 wrong usage, 3 no connection.
"""


class _DefaultGroup(click.Group):
    """A group that works where no subcommand is named."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Put the default in."""
        if not args or (args[0] not in self.commands and args[0] not in context.help_option_names):
            args = ["work", *args]
        return super().parse_args(context, args)


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the command line and exit; whatever goes wrong is one line on stderr."""
    code = EXIT_REFUSED
    try:
        code = cli.main(arguments, prog_name="python -m serving amqp", standalone_mode=False) or 0
    except click.ClickException as error:
        _complain(error.format_message())
        code = error.exit_code
    except ModuleNotFoundError as error:
        extra = "amqp" if error.name == "aio_pika" else "serve"
        _complain(f"there is no {error.name}; try: pip install 'savedmodel-bakery[{extra}]'")
    except (ClientError, StatusError) as error:
        _complain(str(error))
        code = EXIT_NO_CONNECTION if isinstance(error, ConnectionFailedError) else EXIT_REFUSED
    except click.Abort:
        code = EXIT_INTERRUPTED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that still answer beyond the grace must not hold it up


def _broker_options(command: _Command) -> _Command:
    for option in (
        click.option(
            "--queue", default=DEFAULT_QUEUE, envvar="BAKERY_AMQP_QUEUE", show_envvar=True, show_default=True,
            metavar="NAME", help="Queue that questions come from.",
        ),
        click.option(
            "--url", default="amqp://guest:guest@127.0.0.1/", envvar="BAKERY_AMQP_URL", show_envvar=True,
            show_default=True, callback=_parse_broker, metavar="URL",
            help="The broker: amqp[s]://USER:PASSWORD@HOST:PORT/VHOST, with ?cafile=…&certfile=…&keyfile=… for TLS.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def _parse_broker(_context: click.Context, _parameter: click.Parameter, value: str) -> Broker:
    from savedmodel_bakery.client.transports.amqp_broker import Broker

    try:
        return Broker.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _parse_server(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Endpoint | None:
    try:
        return None if value is None else Endpoint.parse(value, 8500, "gRPC")
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.group(cls=_DefaultGroup, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Answer questions that come through a queue of RabbitMQ. Without a COMMAND: work."""


@cli.command()
@_broker_options
@click.option(
    "--model_name",
    default="efficientnet_lite0",
    show_default=True,
    metavar="NAME",
    help="Model of questions that name none.",
)
@click.option(
    "--model_base_path",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of its numbered versions, to load it in this process.",
)
@click.option("--server", callback=_parse_server, metavar="HOST[:PORT]", help="gRPC of a model server to ask instead.")
@click.option(
    "--prefetch", type=click.IntRange(1, 65535), default=16, show_default=True, help="Messages in hand at a time."
)
@click.option(
    "--batch", type=click.IntRange(1), default=1, show_default=True, help="Messages joined into one call; 1 is none."
)
@click.option("--calls", type=click.IntRange(1, 1024), default=2, show_default=True, help="Calls at the same time.")
@click.option(
    "--timeout_second",
    "timeout_s",
    type=click.FloatRange(0, MAX_TIMEOUT_S, min_open=True),
    default=300.0,
    show_default=True,
    help="How long a call may take.",
)
@click.option(
    "--expiration",
    "expiration_s",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="How long an answer is kept for its caller.  [default: for ever]",
)
@click.option(
    "--delivery_limit", type=click.IntRange(1), default=10, show_default=True,
    help="Times that a message may come back unanswered; then it is a dead letter. Fixed when the queue is made.",
)  # fmt: skip
def work(
    queue: str,
    url: Broker,
    model_name: str,
    model_base_path: Path | None,
    server: Endpoint | None,
    prefetch: int,
    batch: int,
    calls: int,
    timeout_s: float,
    expiration_s: float | None,
    delivery_limit: int,
) -> None:
    """Answer questions until SIGTERM, then what is in hand."""
    if (model_base_path is None) == (server is None):
        raise click.UsageError("give --model_base_path to load a model here, or --server to ask one; one of them")
    if batch > prefetch:
        raise click.UsageError(f"--batch {batch} is more than --prefetch {prefetch}: there are never so many to join")
    _log_to_stderr()
    from savedmodel_bakery.serving.amqp import backends
    from savedmodel_bakery.serving.amqp.consumer import WorkerOptions
    from savedmodel_bakery.serving.amqp.handlers import Handlers
    from savedmodel_bakery.serving.amqp.server import Worker

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))  # until there is anything in hand
    backend: backends.Backend
    if server is None:
        assert model_base_path is not None
        backend = backends.OwnModel(model_name, model_base_path, timeout_s=timeout_s)
    else:
        backend = backends.ModelServer(server, timeout_s=timeout_s)
    options = WorkerOptions(
        queue=queue,
        prefetch=prefetch,
        batch_size=batch,
        calls=calls,
        delivery_limit=delivery_limit,
        expiration_s=expiration_s,
    )
    asyncio.run(_work(Worker(url, Handlers(backend, model=model_name).handle, options)))


async def _work(worker: Any) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await worker.run(stop)


@cli.command("status")
@_broker_options
@click.option("--reasons", is_flag=True, help="Read why the dead letters died, of a thousand at most.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def print_status(queue: str, url: Broker, reasons: bool, as_json: bool) -> None:
    """Print how many messages wait, how many workers there are, and how many dead letters."""
    from savedmodel_bakery.serving.amqp import queues

    found = _run(url, lambda channel: queues.status(channel, queue, with_reasons=reasons))
    if as_json:
        click.echo(json.dumps(asdict(found), ensure_ascii=False))
        return
    click.echo(f"{found.queue}\tready {found.ready}\tconsumers {found.consumers}\tdead letters {found.dead}")
    for reason, count in found.reasons.items():
        click.echo(f"{count}\t{' '.join(reason.split())}")


@cli.command("purge")
@_broker_options
def purge_queue(queue: str, url: Broker) -> None:
    """Empty the queue, and answer every waiting caller that it was purged."""
    from savedmodel_bakery.serving.amqp import queues

    click.echo(f"{_run(url, lambda channel: queues.purge(channel, queue))} purged")


@cli.command("requeue")
@_broker_options
def requeue_dead_letters(queue: str, url: Broker) -> None:
    """Put the dead letters back into the queue."""
    from savedmodel_bakery.serving.amqp import queues

    click.echo(f"{_run(url, lambda channel: queues.requeue(channel, queue))} requeued")


def _run(broker: Broker, act: Callable[[AbstractChannel], Awaitable[Result]]) -> Result:
    """Act on a channel of one's own."""

    async def run() -> Result:
        async with await broker.connect("bakery operator", timeout_s=_TIMEOUT_S) as connection:
            with broker.translate_errors():
                return await act(await connection.channel(on_return_raises=True))

    return asyncio.run(run())


def _log_to_stderr() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s] %(message)s", stream=sys.stderr)


def _complain(message: str) -> None:
    click.echo(" ".join(message.split()), err=True)
