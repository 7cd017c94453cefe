"""The command `function`: bake a TensorFlow function."""

from __future__ import annotations

from pathlib import Path

import click

from savedmodel_bakery.exporter.commands import options
from savedmodel_bakery.exporter.commands.running import print_progress, tensorflow
from savedmodel_bakery.exporter.publish import check_free, check_name

EXAMPLES = """\b
Examples:
  bakery function mypackage.sums:add_ten --input x:float64[?,?,?]
  bakery function mypackage.sums:distance --input a:float32[?] --input b:float32[?] --name distance
  bakery function mypackage.photos:shrink --input image:string[] --example photo.npz
"""


@click.command(epilog=EXAMPLES)
@click.argument("function", metavar="PACKAGE.MODULE:CALLABLE")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="NAME:TYPE[SIZES]",
    help="An input, in the order of the arguments; ? is any size, [] a scalar, [...] any shape. Repeatable.",
)
@options.name("Name to serve the function under.  [default: the function's]")
@options.out
@options.version
@options.example
@options.verbose
def function(
    function: str,
    inputs: tuple[str, ...],
    name: str | None,
    out: Path,
    version: int | None,
    example_file: Path | None,
    verbose: bool,
) -> None:
    """Bake a TensorFlow function, validate it and publish it.

    Prints the path of the new version.
    """
    name = function.rpartition(":")[2] if name is None else name
    check_free(out / check_name(name), version)
    with tensorflow("function", verbose=verbose):
        from savedmodel_bakery.exporter.function.bake import bake_function
        from savedmodel_bakery.exporter.function.inputs import parse_input, read_example

        path = bake_function(
            base_path=out / name,
            name=function,
            inputs=[parse_input(text) for text in inputs],
            version=version,
            example=read_example(example_file) if example_file else None,
            progress=print_progress,
        )
    click.echo(path)
