"""The command line: parse, ask, print, exit. Heavy imports stand inside the functions that need them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from savedmodel_bakery.client.commands.amqp import results, submit_images
from savedmodel_bakery.client.commands.bench import bench
from savedmodel_bakery.client.commands.bulk import classify
from savedmodel_bakery.client.commands.inputs import read_arrays, read_file
from savedmodel_bakery.client.commands.options import connection_options, image_option, is_chosen, open_client
from savedmodel_bakery.client.commands.report import (
    golden_json,
    golden_line,
    image_lines,
    image_row,
    one_line,
    plain_reason,
    row_json,
    version_json,
    version_line,
)
from savedmodel_bakery.client.errors import ClientError, ConnectionFailedError
from savedmodel_bakery.client.results import Classification

if TYPE_CHECKING:
    from savedmodel_bakery.client.client import Client

EXIT_REFUSED = 1
EXIT_NO_CONNECTION = 3
EXIT_INTERRUPTED = 130

_IMAGE_OPTIONS = {
    "-i": "images",
    "--top-k": "top_k",
    "--metadata": "wants_metadata",
    "--json": "as_json",
    "--result_queue": "result_queue",
}

EXAMPLES = """
\b
Examples:
  python -m client -i horse.jpg
  python -m client --format REST -t models.example:8501 -i horse.jpg -i cat.png
  python -m client --top-k 3 -i horse.jpg
  curl -s https://photos.example/horse.jpg | python -m client --json -i -
  python -m client status -m efficientnet_lite0
  python -m client predict -m add_ten --input x=array.npy --output-dir out/
  python -m client check saved_model/efficientnet_lite0/1
  python -m client classify photos/ --out results.jsonl
  python -m client bench --callers 1 --callers 8 -i horse.jpg
  python -m client --format AMQP -t amqp://user:password@broker.example -i horse.jpg

\b
Exit codes: 0 answered, 1 refused, 2 wrong usage, 3 no connection.
"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; whatever goes wrong is one line on stderr."""
    try:
        code = cli.main(arguments, prog_name="python -m client", standalone_mode=False)
    except click.ClickException as exc:
        _complain(exc.format_message())
        code = exc.exit_code
    except ClientError as exc:
        _complain(plain_reason(str(exc)))
        code = EXIT_NO_CONNECTION if isinstance(exc, ConnectionFailedError) else EXIT_REFUSED
    except click.Abort:
        code = EXIT_INTERRUPTED
    except OSError as exc:  # a full disk behind stdout
        _complain(f"cannot write the answer: {exc.strerror}")
        code = EXIT_REFUSED
    sys.exit(code)


class _Group(click.Group):
    """A group that knows a forgotten -i when it sees one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand."""
        if args[0] not in self.commands and Path(args[0]).exists():
            advice = f"classify {args[0]} --out FILE" if Path(args[0]).is_dir() else f"-i {args[0]}"
            raise click.UsageError(f"{args[0]} is no command; to ask what it shows: {advice}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Group, invoke_without_command=True, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}
)
@connection_options
@image_option("Image to classify; repeatable, - is stdin.")
@click.option(
    "--top-k",
    type=click.IntRange(min=1),
    envvar="BAKERY_CLIENT_TOP_K",
    show_envvar=True,
    help="Print the N best classes, with scores.",
)
@click.option("--metadata", "wants_metadata", is_flag=True, help="Print the model's signatures as JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object an image.")
@click.option(
    "--result_queue",
    metavar="NAME",
    help="Over AMQP: have the answers sent to a queue, don't wait for them, and print an id of each; see `results`.",
)
@click.pass_context
def cli(
    context: click.Context,
    images: tuple[str, ...],
    top_k: int | None,
    wants_metadata: bool,
    as_json: bool,
    result_queue: str | None,
) -> None:
    """Ask a model server what images show.

    Prints a line an image: the label; with --top-k a line a class: label, score, class id. Where several
    images are given, each line begins with the image's path.
    """
    if context.invoked_subcommand is not None:
        _refuse_image_options(context)
        return
    if not images and not wants_metadata:
        raise click.UsageError("no image was given; name one with -i PATH (- is stdin), or see --help")
    with open_client(context) as client:
        if wants_metadata:
            _print_metadata(client)
        if result_queue is not None:
            submit_images(client, context.obj["signature"], images, top_k, result_queue)
            return
        oks = [_ask(client, context.obj, image, top_k, len(images) > 1, as_json) for image in images]
    context.exit(0 if all(oks) else EXIT_REFUSED)


cli.add_command(classify)


@cli.command("status")
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a version.")
@click.pass_context
def print_status(context: click.Context, as_json: bool) -> None:
    """Print the state of each version of the model, newest first."""
    with open_client(context) as client:
        for status in client.status():
            click.echo(version_json(status) if as_json else version_line(status))


@cli.command("metadata")
@connection_options
@click.pass_context
def print_metadata(context: click.Context) -> None:
    """Print the model's signatures as JSON."""
    with open_client(context) as client:
        _print_metadata(client)


@cli.command("check")
@connection_options
@click.argument("version_folder", metavar="PATH", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a request.")
@click.pass_context
def check_goldens(context: click.Context, version_folder: Path, as_json: bool) -> None:
    """Replay the goldens of the version in PATH against a live server: does it answer as it did when it was baked?

    Asks over gRPC and REST, unless --format names one; the model is the one that was baked, and the version the number
    that the folder is named by, unless options say otherwise. Exits with 1 where an answer differs.
    """
    from savedmodel_bakery.client.goldens import GoldensError, read_goldens, replay

    try:
        goldens = read_goldens(version_folder)
    except GoldensError as exc:
        raise click.UsageError(str(exc)) from exc
    instead: dict[str, Any] = {} if is_chosen(context, "model") else {"model": goldens.model}
    if (
        not is_chosen(context, "version")
        and not is_chosen(context, "label")
        and version_folder.resolve().name.isdecimal()
    ):
        instead["version"] = int(version_folder.resolve().name)
    transports = [context.obj["transport"]] if is_chosen(context, "transport") else ["grpc", "rest"]
    differing = 0
    for transport in transports:
        with open_client(context, transport=transport, **instead) as client:
            for golden in goldens.requests:
                differences = replay(golden, client, goldens.tolerances)
                differing += bool(differences)
                click.echo((golden_json if as_json else golden_line)(transport, golden, differences))
    asked = len(transports) * len(goldens.requests)
    _complain(f"{asked - differing} of {asked} answers agree")
    context.exit(EXIT_REFUSED if differing else 0)


@cli.command("predict")
@connection_options
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="[NAME=]FILE",
    help="An input's array, as npy or JSON; or all inputs by name, as npz or a JSON object. - is stdin. Repeatable.",
)
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to write the outputs, and print the names of their files.  [default: JSON on stdout]",
)
@click.option(
    "--output-format",
    type=click.Choice(["npy", "npz", "json"]),
    default="npy",
    show_default=True,
    help="A file for each output, or one for all.",
)
@click.pass_context
def predict_arrays(
    context: click.Context, inputs: tuple[str, ...], output_dir: Path | None, output_format: str
) -> None:
    """Run a signature on arrays."""
    from savedmodel_bakery.client.commands.array_files import to_json, write_outputs

    tree = read_arrays(inputs)
    with open_client(context) as client:
        try:
            prediction = client.predict(tree, signature=context.obj["signature"])
        except ValueError as exc:
            raise click.UsageError(str(exc)) from exc
    if output_dir is None:
        click.echo(to_json(prediction.arrays))
        return
    for path in write_outputs(prediction.arrays, output_dir, file_format=output_format):
        click.echo(path)


cli.add_command(bench)
cli.add_command(results)


def _print_metadata(client: Client) -> None:
    click.echo(json.dumps(client.metadata(), indent=2, sort_keys=True))


def _ask(client: Client, asked: dict[str, Any], image: str, top_k: int | None, several: bool, as_json: bool) -> bool:
    """Classify one image and print what came of it; False where it could not be classified."""
    from savedmodel_bakery.client.images import encode_images, read_classifications, signature_for

    signature, version = signature_for(asked["signature"], top_k), asked["version"]
    inputs, image = encode_images([read_file(image, "image")]), click.format_filename(image)
    try:
        prediction = client.predict(inputs, signature=signature)
        signature, version = prediction.signature, prediction.version
        [answer] = read_classifications(prediction, batch=1, top_k=top_k)
    except ConnectionFailedError:
        raise  # the next image would fare no better
    except ClientError as exc:
        answer = Classification(ok=False, error=plain_reason(str(exc)), label=None)
    if as_json:
        click.echo(row_json(image_row(image, answer, model=asked["model"], version=version, signature=signature)))
    elif answer.ok:
        for line in image_lines(answer):
            click.echo(f"{image}\t{line}" if several else line)
    if not answer.ok:
        _complain(f"{image}: {answer.error}")
    return answer.ok


def _refuse_image_options(context: click.Context) -> None:
    """Refuse what a subcommand would drop in silence."""
    for option, name in _IMAGE_OPTIONS.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f'{option} was given before "{context.invoked_subcommand}", which takes none there')


def _complain(message: str) -> None:
    click.echo(one_line(message), err=True)
