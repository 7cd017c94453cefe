"""The command `results`: fetch the replies to requests that were sent with a result queue."""

from __future__ import annotations

import json

import click

from savedmodel_bakery.client.commands.options import connection_options, open_amqp_client
from savedmodel_bakery.client.endpoints import MAX_TIMEOUT_S
from savedmodel_bakery.errors import ClientError
from savedmodel_bakery.groups import Command, FloatRange, Option

EXAMPLES = """
\b
Examples:
  bakery ask --format AMQP --result-queue labels horse.jpg
  bakery results --format AMQP labels
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("result_queue", metavar="QUEUE")
@click.option(
    "--idle-seconds",
    "idle_s",
    cls=Option,
    aliases=("--idle",),
    type=FloatRange(0, MAX_TIMEOUT_S, min_open=True),
    default=1.0,
    show_default=True,
    help="Stop if no reply arrives for this time.",
)
@connection_options
@click.pass_context
def results(context: click.Context, result_queue: str, idle_s: float) -> None:
    """Print the replies in an AMQP queue, and remove them from it.

    Needs --format AMQP. Prints one JSON object per line: the id of the request, and its outputs or its error.
    """
    from savedmodel_bakery.client.commands.array_files import to_json

    with open_amqp_client(context) as client:
        for correlation_id, result in client.results(result_queue, idle_s=idle_s):
            if isinstance(result, ClientError):
                content = f'"error": {json.dumps(str(result), ensure_ascii=False)}'
            else:
                content = f'"outputs": {to_json(result.arrays)}'
            click.echo(f'{{"id": {json.dumps(correlation_id)}, {content}}}')
