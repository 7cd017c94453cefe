"""The command `ask`: classify photos, one request per photo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from savedmodel_bakery.client.commands.groups import Command
from savedmodel_bakery.client.commands.inputs import read_file
from savedmodel_bakery.client.commands.metadata import print_metadata
from savedmodel_bakery.client.commands.options import (
    PhotoPath,
    connection_options,
    image_option,
    open_amqp_client,
    open_client,
)
from savedmodel_bakery.client.errors import AccessDeniedError, ClientError, ConnectionFailedError
from savedmodel_bakery.client.exits import FAILED, print_error, refusal_text

if TYPE_CHECKING:
    from savedmodel_bakery.client.client import BaseClient
    from savedmodel_bakery.client.image_results import Classification

EXAMPLES = """
\b
Examples:
  bakery ask horse.jpg cat.png
  bakery ask --format REST -t models.example:8501 --top-k 3 horse.jpg
  curl -s https://photos.example/horse.jpg | bakery ask --json -
  bakery ask --format AMQP -t amqp://user:password@broker.example --result-queue results horse.jpg

\b
Exit codes: 0 all classified, 1 refused or failed, 2 wrong usage, 3 cannot connect, 130 interrupted.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("photos", nargs=-1, metavar="[PHOTO]...", type=PhotoPath())
@image_option("A photo, as an alternative to PHOTO; repeatable.")
@click.option(
    "--top-k",
    type=click.IntRange(min=1),
    envvar="BAKERY_CLIENT_TOP_K",
    show_envvar=True,
    help="Print this number of classes per photo, with scores.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per photo.")
@click.option(
    "--result-queue",
    metavar="QUEUE",
    help="With --format AMQP: send the replies to this queue instead of waiting for them, and print the id of each "
    "request. Fetch the replies with `results`. Workers allow names that start with `results`, unless their own "
    "--result-queue says otherwise.",
)
@click.option("--metadata", "show_metadata", is_flag=True, help="Print the model's signatures, as `metadata` does.")
@connection_options
@click.pass_context
def ask(
    context: click.Context,
    photos: tuple[str, ...],
    images: tuple[str, ...],
    top_k: int | None,
    as_json: bool,
    result_queue: str | None,
    show_metadata: bool,
) -> None:
    """Classify photos.

    PHOTO is an image file, or - for stdin. For each photo, prints its label on one line. With --top-k, prints one line
    per class: label, score and class id. With several photos, each line starts with the photo's path.
    """
    paths = (*images, *photos)
    if not paths and not show_metadata:
        raise click.UsageError("no photo: pass one or more as arguments (- is stdin), or see --help")
    if result_queue is not None:
        _submit(context, paths, top_k, result_queue)
        return
    with open_client(context) as client:
        if show_metadata:
            print_metadata(client)
        is_classified = [
            _classify(client, context.obj, path, top_k, several=len(paths) > 1, as_json=as_json) for path in paths
        ]
    context.exit(0 if all(is_classified) else FAILED)


def _classify(
    client: BaseClient, options: dict[str, Any], path: str, top_k: int | None, *, several: bool, as_json: bool
) -> bool:
    """Classify a photo and print the result; return whether it could be classified."""
    from savedmodel_bakery.client.bulk.rows import make_row, row_json
    from savedmodel_bakery.client.images import encode_images
    from savedmodel_bakery.client.signatures import DEFAULT_SIGNATURE, TOP_K_SIGNATURE
    from savedmodel_bakery.client.tasks import CLASSIFY, keep_top

    signature, version = options["signature"], options["version"]
    signature = TOP_K_SIGNATURE if signature == DEFAULT_SIGNATURE else signature
    inputs, name = encode_images([read_file(path, "photo")]), click.format_filename(path)
    try:
        prediction = client.predict(inputs, signature=signature)
        signature, version = prediction.signature, prediction.version
        [classification] = CLASSIFY.read(prediction, batch=1)
        classification = keep_top(classification, top_k)
    except (AccessDeniedError, ConnectionFailedError):
        raise  # the next photo would fail too
    except ClientError as exc:
        classification = CLASSIFY.failed(refusal_text(str(exc)))
    if as_json:
        row = make_row(name, classification, model=options["model"], version=version, signature=signature)
        click.echo(row_json(row))
    elif classification.ok:
        for line in _lines(classification, top_k):
            click.echo(f"{name}\t{line}" if several else line)
    if not classification.ok:
        print_error(f"{name}: {classification.error}")
    return classification.ok


def _lines(classification: Classification, top_k: int | None) -> list[str]:
    return [f"{row.label}\t{row.score:.3f}\t{row.class_id}" for row in classification.top[: top_k or 1]]


def _submit(context: click.Context, paths: tuple[str, ...], top_k: int | None, result_queue: str) -> None:
    """Publish one request per photo and print their ids."""
    from savedmodel_bakery.client.images import encode_images
    from savedmodel_bakery.client.signatures import DEFAULT_SIGNATURE, TOP_K_SIGNATURE

    signature = context.obj["signature"]
    signature = TOP_K_SIGNATURE if top_k is not None and signature == DEFAULT_SIGNATURE else signature
    with open_amqp_client(context) as client:
        for path in paths:
            inputs = encode_images([read_file(path, "photo")])
            correlation_id = client.submit(inputs, signature=signature, result_queue=result_queue)
            click.echo(f"{click.format_filename(path)}\t{correlation_id}" if len(paths) > 1 else correlation_id)
