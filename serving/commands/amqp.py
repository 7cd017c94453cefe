"""`bakery amqp` and `python -m serving amqp`: parses, calls one function, prints. Imports heavy modules when needed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.shell_completion import CompletionItem

from savedmodel_bakery import log, tracing
from savedmodel_bakery.client.servers import MAX_TIMEOUT_S
from savedmodel_bakery.defaults import DEFAULT_MODEL
from savedmodel_bakery.exits import as_usage_error
from savedmodel_bakery.groups import CONTEXT_SETTINGS, Command, FloatRange, Group, Option
from savedmodel_bakery.serving import process
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.commands import amqp_queues
from savedmodel_bakery.serving.commands.metrics_page import metrics_options, serve_page
from savedmodel_bakery.serving.models.storage import find_model
from savedmodel_bakery.tensorflow_import import show_log
from savedmodel_bakery.wire.amqp import MAX_MESSAGE_BYTES
from savedmodel_bakery.wire.model_config import ModelConfig

if TYPE_CHECKING:
    from savedmodel_bakery.client.servers import Server
    from savedmodel_bakery.client.transports.amqp_broker import Broker
    from savedmodel_bakery.serving.amqp.backends import Backend
    from savedmodel_bakery.serving.amqp.server import Worker

EXAMPLES = """
\b
Examples:
  bakery amqp --model-base-path saved_model/efficientnet_lite0
  bakery amqp --url amqps://worker:secret@broker.example/ --server models.example:8500
  bakery amqp status
  bakery amqp purge

\b
Exit codes: 0 success, 1 refused or failed, 2 wrong usage, 3 cannot connect, 130 interrupted.
"""


class _DefaultGroup(Group):
    """A group whose default command is `work`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Insert the default command, but not while the shell completes the first argument."""
        is_command = bool(args) and (not args[0].startswith("-") or args[0] in context.help_option_names)
        is_completing = not args and context.resilient_parsing
        if not is_command and not is_completing:
            args = ["work", *args]
        return super().parse_args(context, args)

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of the commands, and the options of the default command."""
        if not incomplete.startswith("-"):
            return super().shell_complete(context, incomplete)
        work = self.commands["work"]
        return work.shell_complete(work.make_context("work", [], parent=context, resilient_parsing=True), incomplete)


_WORK_BRIEF = {
    "url": "The broker: amqp[s]://USER:PASSWORD@HOST:PORT/VHOST.",
    "model_base_path": None,
    "server": None,
    "token_file": "File with the token for --server.",
    **dict.fromkeys(("queue", "prefetch", "batch_size", "calls", "metrics_port")),
}


@click.group(cls=_DefaultGroup, epilog=EXAMPLES, context_settings=CONTEXT_SETTINGS)
def cli() -> None:
    """Process requests from a RabbitMQ queue. The default COMMAND is work."""


@cli.command(
    cls=Command,
    brief=_WORK_BRIEF,
    epilog="""
\b
Examples:
  bakery amqp work --model-base-path saved_model/flowers
  bakery amqp work --url amqps://worker:secret@broker.example/ --server models.example:8500 --batch-size 8
""",
    context_settings={"show_default": True},
)
@amqp_queues.broker_options
@click.option(
    "-m",
    "--model",
    "model_name",
    cls=Option,
    aliases=("--model-name",),
    show_default=f"the folder's name; with --server {DEFAULT_MODEL}",
    metavar="NAME",
    help="Name of the model, and model of messages that name none.",
)
@click.option(
    "--model-base-path",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Load this model into the worker: the folder of its versions, or of one version.",
)
@amqp_queues.server_options
@click.option(
    "--prefetch",
    type=click.IntRange(1, 65535),
    default=16,
    help="Messages delivered to the worker and not yet acknowledged.",
)
@click.option(
    "--batch-size",
    cls=Option,
    aliases=("--batch",),
    type=click.IntRange(1),
    default=1,
    help="Messages that may be joined into one call; 1 turns joining off.",
)
@click.option("--calls", type=click.IntRange(1, 1024), default=2, help="Concurrent calls.")
@click.option(
    "--timeout-seconds",
    "timeout_s",
    cls=Option,
    aliases=("--timeout-second",),
    type=FloatRange(0, MAX_TIMEOUT_S, min_open=True),
    default=300.0,
    help="Time limit of a call.",
)
@click.option(
    "--expiration-seconds",
    "expiration_s",
    cls=Option,
    aliases=("--expiration",),
    type=FloatRange(0, min_open=True),
    metavar="SECONDS",
    show_default="never",
    help="Time after which the broker drops a reply that nobody has fetched.",
)
@click.option(
    "--delivery-limit",
    type=click.IntRange(1),
    default=10,
    help="Deliveries without a reply after which a message is dead-lettered. Fixed when the queue is created.",
)
@click.option(
    "--retry-attempts",
    type=click.IntRange(1, 100),
    default=5,
    help="Attempts during which the model server was unavailable or overloaded, after which a message is "
    "dead-lettered.",
)
@amqp_queues.result_queue_option
@click.option(
    "--max-message-bytes",
    type=click.IntRange(1, MAX_MESSAGE_BYTES),
    default=MAX_MESSAGE_BYTES,
    help="Size of the largest message that is processed.",
)
@click.option(
    "--max-rows-per-request",
    "max_rows",
    type=click.IntRange(1),
    default=Limits.rows,
    help="Strings in one input, or examples, of a message, with --model-base-path.",
)
@click.option(
    "--memory-budget-bytes",
    type=click.IntRange(0),
    default=0,
    show_default="70 % less what the model uses",
    help="Memory for delivered messages and calls.",
)
@metrics_options
@click.option("-v", "--verbose", is_flag=True, help="Show the log of TensorFlow.")
@click.pass_context
def work(
    context: click.Context,
    /,
    queue: str,
    url: Broker,
    model_name: str | None,
    model_base_path: Path | None,
    server: str | None,
    prefetch: int,
    batch_size: int,
    calls: int,
    timeout_s: float,
    expiration_s: float | None,
    delivery_limit: int,
    retry_attempts: int,
    result_queues: tuple[str, ...],
    max_message_bytes: int,
    max_rows: int,
    memory_budget_bytes: int,
    metrics_port: int | None,
    metrics_address: str,
    verbose: bool,
    **credentials: Any,
) -> None:
    """Process messages until SIGTERM, then finish the prefetched ones."""
    if (model_base_path is None) == (server is None):
        raise click.UsageError("pass either --model-base-path, to load a model, or --server, to call one")
    if batch_size > prefetch:
        raise click.UsageError(f"--batch-size {batch_size} must not be greater than --prefetch {prefetch}")
    if verbose:
        show_log()
    log.configure(logging.INFO, log.SERVER_FORMAT)
    process.use_system_allocator()
    model_server = amqp_queues.describe_server(server, **credentials)
    with amqp_queues.naming_missing_extras(context):
        from savedmodel_bakery.serving.amqp.handlers import CallLimits, Handlers, divide_memory
        from savedmodel_bakery.serving.amqp.server import Worker
        from savedmodel_bakery.serving.amqp.settling import WorkerOptions

    if metrics_port is not None:
        serve_page(metrics_address, metrics_port)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _exit())  # until the worker consumes
    with amqp_queues.naming_missing_extras(context), as_usage_error(ValueError):
        config = find_model(model_base_path, model_name) if model_base_path else None
        model_name = config.name if config else model_name or DEFAULT_MODEL
        backend = _make_backend(config, model_server)
    prefetch, memory = divide_memory(memory_budget_bytes, prefetch=prefetch, max_message_bytes=max_message_bytes)
    limits = CallLimits(timeout_s, memory, max_rows)
    options = WorkerOptions(
        queue=queue,
        prefetch=prefetch,
        max_message_bytes=max_message_bytes,
        batch_size=batch_size,
        calls=calls,
        delivery_limit=delivery_limit,
        retry_attempts=retry_attempts,
        result_queues=result_queues,
        expiration_s=expiration_s,
    )
    try:
        handlers = Handlers(backend, model_name=model_name, limits=limits)
        asyncio.run(_run_worker(Worker(url, handlers, options, measures_queue=metrics_port is not None)))
    except BaseException:
        backend.close()
        raise
    _exit()


def _make_backend(config: ModelConfig | None, server: Server | None) -> Backend:
    if server is not None:
        from savedmodel_bakery.serving.amqp.backends import RemoteServer

        return RemoteServer(server)
    assert config is not None
    from savedmodel_bakery.serving.runtimes import import_tensorflow

    import_tensorflow()
    from savedmodel_bakery.serving.loaded_model import LoadedModel

    return LoadedModel(config)


async def _run_worker(worker: Worker) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await worker.run(stop)


def _exit() -> NoReturn:
    """Exit at once, without waiting for calls that take longer than the grace period."""
    sys.stderr.flush()
    tracing.flush()
    os._exit(0)


for command in (
    amqp_queues.print_status,
    amqp_queues.purge_queue,
    amqp_queues.requeue_dead_letters,
    amqp_queues.print_replies,
):
    cli.add_command(command)
