"""Commands for answers that come to a queue: asking for them, and fetching them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from savedmodel_bakery.client.commands.inputs import read_file
from savedmodel_bakery.client.commands.options import connection_options, open_client
from savedmodel_bakery.client.errors import ClientError
from savedmodel_bakery.client.transports.transport import MAX_TIMEOUT_S

if TYPE_CHECKING:
    from savedmodel_bakery.client.client import Client


@click.command()
@connection_options
@click.argument("result_queue", metavar="QUEUE")
@click.option(
    "--idle",
    "idle_s",
    type=click.FloatRange(0, MAX_TIMEOUT_S, min_open=True),
    default=1.0,
    show_default=True,
    help="Seconds without a further answer after which to end.",
)
@click.pass_context
def results(context: click.Context, result_queue: str, idle_s: float) -> None:
    """Print the answers that came to QUEUE over AMQP, each as a JSON object on a line, and take them out of it."""
    from savedmodel_bakery.client.commands.array_files import to_json

    with open_client(context) as client:
        try:
            for correlation_id, found in client.results(result_queue, idle_s=idle_s):
                identified = f'{{"id": {json.dumps(correlation_id)}, '
                if isinstance(found, ClientError):
                    click.echo(f'{identified}"error": {json.dumps(str(found), ensure_ascii=False)}}}')
                else:
                    click.echo(f'{identified}"outputs": {to_json(found.arrays)}}}')
        except ValueError as exc:
            raise click.UsageError(str(exc)) from exc


def submit_images(
    client: Client, signature: str, images: tuple[str, ...], top_k: int | None, result_queue: str
) -> None:
    """Have images classified, the answers sent to a queue, and print an id of each."""
    from savedmodel_bakery.client.images import encode_images, signature_for

    for image in images:
        inputs = encode_images([read_file(image, "image")])
        try:
            found = client.submit(inputs, signature=signature_for(signature, top_k), result_queue=result_queue)
        except ValueError as exc:
            raise click.UsageError(str(exc)) from exc
        click.echo(f"{click.format_filename(image)}\t{found}" if len(images) > 1 else found)
