"""The command `predict`: run a signature on arrays."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from savedmodel_bakery.client.commands.inputs import read_arrays
from savedmodel_bakery.client.commands.options import connection_options, open_client
from savedmodel_bakery.exits import as_usage_error
from savedmodel_bakery.groups import Command, Option

EXAMPLES = """
\b
Examples:
  bakery predict -m add_ten --input x=array.npy --out outputs/
  echo '[[1, 2]]' | bakery predict -m add_ten --input x=-
  bakery predict -m flowers -n pixels --input inputs.npz --out outputs/ --output-format npz
"""


@click.command(cls=Command, epilog=EXAMPLES)
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
