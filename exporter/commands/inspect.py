"""The command `inspect`: show what a version contains."""

from __future__ import annotations

import json
from pathlib import Path

import click

from savedmodel_bakery.exporter.commands.options import CONTEXT, json_option
from savedmodel_bakery.exporter.commands.running import reported_errors
from savedmodel_bakery.exporter.errors import PublishError

EXAMPLES = """\b
Examples:
  bakery inspect saved_model/efficientnet_lite0/1
  bakery inspect saved_model/add_sub_mul/1 --svg add_sub_mul.svg
"""


@click.command(epilog=EXAMPLES, context_settings=CONTEXT)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--svg",
    "svg_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File for a picture of a pipeline.",
)
@json_option
@reported_errors()
def inspect(path: Path, svg_file: Path | None, as_json: bool) -> None:
    """Show the signatures, recipe and size of the version in PATH, and the steps of a pipeline.

    Also names the oldest TensorFlow in which bakes of this task and precision were tested.
    """
    from savedmodel_bakery.exporter.inspect import format_size
    from savedmodel_bakery.exporter.inspect import inspect as read
    from savedmodel_bakery.exporter.pipeline.description import read_description
    from savedmodel_bakery.exporter.pipeline.svg_drawing import draw_svg
    from savedmodel_bakery.exporter.pipeline.text_drawing import draw_text

    inspection = read(path)
    pipeline = None if as_json and svg_file is None else read_description(path)
    if svg_file is not None:
        if pipeline is None:
            raise PublishError(f"no pipeline in {path}: only a version that `bakery compose` made can be drawn")
        try:
            svg_file.write_text(draw_svg(*pipeline), encoding="utf-8")
        except OSError as error:
            raise PublishError(f"cannot write {svg_file}: {error.strerror}") from error
    if as_json:
        click.echo(json.dumps(inspection.to_json()))
        return
    size, weights = format_size(inspection.size_bytes), format_size(inspection.weights_bytes)
    click.echo(f"{inspection.path}: {size}, of which weights {weights}")
    if inspection.oldest_tensorflow is not None:
        click.echo(f"oldest TensorFlow tested with these options: {inspection.oldest_tensorflow}")
    for signature in inspection.signatures:
        click.echo(f"\n{signature.name} ({signature.method})")
        for arrow, tensors in (("→", signature.inputs), ("←", signature.outputs)):
            for tensor in tensors:
                click.echo(f"  {arrow} {tensor}")
    if pipeline is not None:
        title, text = "pipeline", draw_text(*pipeline)
    elif inspection.recipe:
        title, text = "recipe", inspection.recipe
    else:
        title, text = "no recipe: this SavedModel was not baked here", ""
    click.echo(f"\n{title}")
    click.echo("".join(f"  {line}".rstrip() + "\n" for line in text.splitlines()), nl=False)
