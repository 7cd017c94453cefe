"""The commands `predict`: run a signature on arrays, and `results`: fetch the replies in a result queue."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from savedmodel_bakery.client.commands.options import BRIEF, connection_options, open_amqp_client, open_client
from savedmodel_bakery.client.servers import MAX_TIMEOUT_S
from savedmodel_bakery.errors import ClientError
from savedmodel_bakery.exits import as_usage_error
from savedmodel_bakery.groups import Command, FloatRange, Option, option_group

if TYPE_CHECKING:
    from savedmodel_bakery.client.amqp_clients import AmqpClient

PREDICT_EXAMPLES = """
\b
Examples:
  bakery predict -m add_ten --input x=array.npy --out outputs/
  echo '[[1, 2]]' | bakery predict -m add_ten --input x=-
  bakery predict -m flowers -n pixels --input inputs.npz --out outputs/ --output-format npz
"""
RESULTS_EXAMPLES = """
\b
Examples:
  bakery ask --format AMQP --result-queue labels horse.jpg
  bakery amqp results labels
"""


@click.command(
    cls=Command,
    epilog=PREDICT_EXAMPLES,
    brief=dict.fromkeys(("inputs", "out", "output_format", "signature")) | BRIEF,
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="[NAME=]FILE",
    help="An input as npy or JSON; or, without NAME, all inputs as npz or a JSON object. - is stdin. Repeatable.",
)
@click.option(
    "--out",
    cls=Option,
    aliases=("--output-dir",),
    type=click.Path(path_type=Path, file_okay=False),
    show_default="print JSON",
    help="Folder for the outputs; prints the names of the files.",
)
@click.option(
    "--output-format",
    type=click.Choice(["npy", "npz", "json"]),
    default="npy",
    show_default=True,
    help="Write one file per output (npy), or one for all; npy and npz need --out.",
)
@connection_options
@click.pass_context
def predict(context: click.Context, inputs: tuple[str, ...], out: Path | None, output_format: str) -> None:
    """Run a signature on arrays from files."""
    from savedmodel_bakery.client.commands.array_files import to_json, write_outputs

    is_stated = context.get_parameter_source("output_format") is not ParameterSource.DEFAULT
    if out is None and is_stated and output_format != "json":
        raise click.UsageError(f"--output-format {output_format} needs --out, the folder for the files")
    arrays = read_arrays(inputs)
    with open_client(context) as client, as_usage_error(ValueError):
        prediction = client.predict(arrays, signature=context.obj["signature"])
    if out is None:
        click.echo(to_json(prediction.arrays))
        return
    for path in write_outputs(prediction.arrays, out, file_format=output_format):
        click.echo(path)


def read_arrays(arguments: Sequence[str]) -> dict[str, Any]:
    """Return inputs by name from arguments of the form [NAME=]FILE; see `array_files.read_input`."""
    from savedmodel_bakery.client.commands.array_files import read_input

    inputs: dict[str, Any] = {}
    for argument in arguments:
        name, _, file = argument.rpartition("=")
        with as_usage_error(ValueError):
            additional = read_input(name or None, read_file(file, "input"), "stdin" if file == "-" else file)
        if duplicates := inputs.keys() & additional.keys():
            raise click.UsageError(f'input "{min(duplicates)}" was given twice')
        inputs |= additional
    return inputs


def read_file(file: str, purpose: str) -> bytes:
    """Return the content of a file, or of stdin for `-`; `purpose` says what the file is, for the error message."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as exc:
        raise click.UsageError(f"{purpose} {file} cannot be read: {exc.strerror}") from exc


results_options = option_group(
    click.argument("result_queue", metavar="QUEUE"),
    click.option(
        "--idle-seconds",
        "idle_s",
        cls=Option,
        aliases=("--idle",),
        type=FloatRange(0, MAX_TIMEOUT_S, min_open=True),
        default=1.0,
        show_default=True,
        help="Stop if no reply arrives for this time.",
    ),
)
"""Gives a command the argument and the option of `print_results`."""


@click.command(cls=Command, epilog=RESULTS_EXAMPLES, brief={"idle_s": None} | BRIEF)
@results_options
@connection_options
@click.pass_context
def results(context: click.Context, result_queue: str, idle_s: float) -> None:
    """Print the replies in an AMQP queue, and remove them from it.

    Needs --format AMQP. Prints one JSON object per line: the id of the request, and its outputs or its error.
    """
    print_results(open_amqp_client(context), result_queue, idle_s)


def print_results(client: AmqpClient, result_queue: str, idle_s: float) -> None:
    """Print the replies in a queue, one JSON object per line, and remove them; then close the client."""
    from savedmodel_bakery.client.commands.array_files import to_json

    with client:
        for correlation_id, result in client.results(result_queue, idle_s=idle_s):
            if isinstance(result, ClientError):
                content = f'"error": {json.dumps(str(result), ensure_ascii=False)}'
            else:
                content = f'"outputs": {to_json(result.arrays)}'
            click.echo(f'{{"id": {json.dumps(correlation_id)}, {content}}}')
