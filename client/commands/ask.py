"""The command `ask`: send photos to a model, one request per photo, and print what it returns.

`ask_options` and `run_ask` let another program build a command that also has other clients.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from savedmodel_bakery.client.commands.inspection import print_metadata
from savedmodel_bakery.client.commands.options import BRIEF, connection_options, open_amqp_client, open_client
from savedmodel_bakery.client.commands.other_inputs import read_inputs
from savedmodel_bakery.client.commands.photo_options import PhotoPath, icc_option, image_option
from savedmodel_bakery.client.commands.predict import read_file
from savedmodel_bakery.errors import AccessDeniedError, ClientError, ConnectionFailedError
from savedmodel_bakery.exits import FAILED, print_error, refusal_text
from savedmodel_bakery.groups import Command, option_group

if TYPE_CHECKING:
    import numpy as np

    from savedmodel_bakery.answers.other_inputs import Specs
    from savedmodel_bakery.answers.task import Task
    from savedmodel_bakery.client.client import BaseClient
    from savedmodel_bakery.client.commands.answers import Output

HELP = """Send photos to a model and print what it returns.

PHOTO is an image file, or - for stdin. The lines for a photo depend on the model's task:

\b
  classify, binary  label, score and class id of the best class, or of several with --top-k
  multilabel        label and score of each label
  detect            ymin, xmin, ymax, xmax, label and score of each box, in pixels
  segment           each label and its share of the pixels
  embed             the vector as JSON
  regress           the name and value of each number
  keypoints         y, x (pixels), name, and score if there is one
  heads             name of the head, and a line of its task
  image             size of the picture; --out saves it
  tensors           name, type, shape and first values of each array

With several photos, each line starts with the photo's path.
"""

EXAMPLES = """
\b
Examples:
  bakery ask horse.jpg cat.png
  bakery ask --format REST -t models.example:8501 --top-k 3 horse.jpg
  bakery ask -m detector --draw boxes.png street.jpg
  bakery ask -m embedder --out vector.npy horse.jpg
  bakery ask -m prices --input 'rooms=[3, 1]' --input city=Bath house.jpg
  curl -s https://photos.example/horse.jpg | bakery ask --json -
  bakery ask --format AMQP -t amqp://user:password@broker.example --result-queue results horse.jpg

\b
Exit codes: 0 all photos have a result, 1 refused or failed, 2 wrong usage, 3 cannot connect, 130 interrupted.
"""

ASK_BRIEF = {
    "top_k": "Print this number of classes per photo.",
    "as_json": None,
    "out": "File for the vector of an embedder, .npy, or for a map or picture, .png.",
    "draw": "File for the photo with the boxes, places or map that the model returned, .png.",
    **BRIEF,
}
"""The options that `ask --help` shows; see `groups.Command`."""

ask_options = option_group(
    click.argument("photos", nargs=-1, metavar="[PHOTO]...", type=PhotoPath()),
    image_option("A photo, as an alternative to PHOTO; repeatable."),
    click.option(
        "--top-k",
        type=click.IntRange(min=1),
        envvar="BAKERY_CLIENT_TOP_K",
        show_envvar=True,
        show_default="1; with --json all",
        help="Print this number of classes per photo.",
    ),
    click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="NAME=FILE|JSON",
        help="Another input of the model, for one photo: an .npy or JSON file, or for image_2 a photo; or JSON, or "
        "text. With several photos, once for each in their order.",
    ),
    icc_option,
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object per photo."),
    click.option(
        "--out",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File for the vector of an embedder, .npy, or for the map of a segmenter, .png.",
    ),
    click.option(
        "--draw",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File for the photo with the boxes and masks of a detector, or the map of a segmenter, .png. Needs the "
        "extra draw.",
    ),
    click.option(
        "--colours",
        type=click.Path(dir_okay=False, path_type=Path, exists=True),
        help="Label file with the colours of --draw; see bake --labels.",
    ),
    click.option(
        "--result-queue",
        metavar="QUEUE",
        help="With --format AMQP: send the replies to this queue instead of waiting for them, and print the id of each "
        "request. Fetch the replies with `amqp results`. Workers allow names that start with `results`, unless their "
        "own --result-queue says otherwise.",
    ),
    click.option("--metadata", "show_metadata", is_flag=True, help="Print the model's signatures, as `metadata` does."),
    connection_options,
)
"""Gives a command the arguments and options of `run_ask`."""


@click.command(cls=Command, help=HELP, epilog=EXAMPLES, brief=ASK_BRIEF)
@ask_options
@click.pass_context
def ask(context: click.Context, /, **options: Any) -> None:
    """Run `ask` on the server of the connection options."""
    context.exit(run_ask(context, open_client, **options))


def run_ask(
    context: click.Context,
    connect: Callable[[click.Context], BaseClient],
    *,
    photos: tuple[str, ...],
    images: tuple[str, ...],
    top_k: int | None,
    inputs: tuple[str, ...],
    icc: bool,
    as_json: bool,
    out: Path | None,
    draw: Path | None,
    colours: Path | None,
    result_queue: str | None,
    show_metadata: bool,
) -> int:
    """Send photos with the client that `connect` returns, print the results, and return the exit code."""
    paths = (*images, *photos)
    if not paths and not show_metadata:
        raise click.UsageError("no photo: pass one or more as arguments (- is stdin), or see --help")
    if result_queue is not None:
        for option, value in (("--out", out), ("--draw", draw), ("--colours", colours), ("--json", as_json)):
            if value:
                raise click.UsageError(f"{option} does not apply to --result-queue: the results are not printed")
        if inputs:
            raise click.UsageError("--input does not apply to --result-queue, which sends photos alone")
        _submit(context, paths, top_k, result_queue, icc=icc)
        return 0
    with connect(context) as client:
        if show_metadata:
            print_metadata(client)
        if not paths:
            return 0
        from savedmodel_bakery.client.commands.answers import Output

        task, signature, specs = _find_task(client, context.obj["signature"], top_k)
        others = read_inputs(inputs, specs, len(paths))
        output = Output(task, photos=len(paths), top_k=top_k, as_json=as_json, out=out, draw=draw, colours=colours)
        are_ok = [
            _ask(client, context.obj, path, task, signature, output, others=values, icc=icc)
            for path, values in zip(paths, others, strict=True)
        ]
    return 0 if all(are_ok) else FAILED


def _find_task(client: BaseClient, signature: str, top_k: int | None) -> tuple[Task[Any], str, Specs]:
    """Return the model's task, the signature to run, and its inputs beside the image.

    With `top_k` a tagger is run as a classifier.
    """
    from savedmodel_bakery.answers.other_inputs import other_inputs
    from savedmodel_bakery.answers.signatures import DEFAULT_SIGNATURE, TOP_K_SIGNATURE, read_signatures
    from savedmodel_bakery.answers.tasks import find_task
    from savedmodel_bakery.answers.tasks.labels import CLASSIFY

    signatures = read_signatures(client.metadata())
    if top_k is not None and signature == DEFAULT_SIGNATURE and TOP_K_SIGNATURE in signatures.by_name:
        signature = TOP_K_SIGNATURE
    task, signature = find_task(signatures, signature)
    if top_k is not None and task is not CLASSIFY:
        raise click.UsageError(f"--top-k does not apply to a model whose task is {task.name}")
    return task, signature, other_inputs(signatures.find(signature).inputs)


def _ask(
    client: BaseClient,
    options: dict[str, Any],
    path: str,
    task: Task[Any],
    signature: str,
    output: Output,
    *,
    others: dict[str, np.ndarray],
    icc: bool,
) -> bool:
    """Send a photo and print the result; return whether there is one."""
    from savedmodel_bakery.answers.images import encode_images
    from savedmodel_bakery.answers.rows import make_row
    from savedmodel_bakery.answers.tasks.labels import CLASSIFY, keep_top

    photo, name, version = _read(path, icc=icc), click.format_filename(path), options["version"]
    try:
        prediction = client.predict({**encode_images([photo]), **others}, signature=signature)
        version = prediction.version
        [result] = task.read(prediction, batch=1)
        if task is CLASSIFY:
            result = keep_top(result, output.top_k)
    except (AccessDeniedError, ConnectionFailedError):
        raise  # the next photo would fail too
    except ClientError as exc:
        result = task.failed(refusal_text(str(exc)))
    row = make_row(task, name, result, model=options["model"], version=version, signature=signature)
    output.write(photo, result, row)
    if not result.ok:
        print_error(f"{name}: {result.error}")
    return bool(result.ok)


def _read(path: str, *, icc: bool) -> bytes:
    """Return a photo as it is sent."""
    from savedmodel_bakery.answers.images import convert_photo, to_srgb

    content = read_file(path, "photo")
    return to_srgb(content) if icc else convert_photo(content)


def _submit(context: click.Context, paths: tuple[str, ...], top_k: int | None, result_queue: str, *, icc: bool) -> None:
    """Publish one request per photo and print their ids."""
    from savedmodel_bakery.answers.images import encode_images
    from savedmodel_bakery.answers.signatures import DEFAULT_SIGNATURE, TOP_K_SIGNATURE

    signature = context.obj["signature"]
    signature = TOP_K_SIGNATURE if top_k is not None and signature == DEFAULT_SIGNATURE else signature
    with open_amqp_client(context) as client:
        for path in paths:
            inputs = encode_images([_read(path, icc=icc)])
            correlation_id = client.submit(inputs, signature=signature, result_queue=result_queue)
            click.echo(f"{click.format_filename(path)}\t{correlation_id}" if len(paths) > 1 else correlation_id)
