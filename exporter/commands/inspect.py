"""The command `inspect`: show what a version contains."""

from __future__ import annotations

import json
from pathlib import Path

import click

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.exporter.commands.options import CONTEXT, json_option

EXAMPLES = """\b
Examples:
  bakery inspect saved_model/efficientnet_lite0/1
  bakery inspect saved_model/add_sub_mul/1 --mermaid
"""


@click.command(epilog=EXAMPLES, context_settings=CONTEXT)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--mermaid", "as_mermaid", is_flag=True, help="Print a pipeline as a Mermaid diagram, for Markdown.")
@json_option
def inspect(path: Path, as_mermaid: bool, as_json: bool) -> None:
    """Show the signatures, recipe and size of the version in PATH, and the steps of a pipeline.

    Also names the oldest TensorFlow in which bakes of this task and precision were tested.
    """
    from savedmodel_bakery.exporter.inspect import format_size
    from savedmodel_bakery.exporter.inspect import inspect as read
    from savedmodel_bakery.exporter.pipeline.description import read_description
    from savedmodel_bakery.exporter.pipeline.drawing import draw_mermaid, draw_text

    if as_mermaid and as_json:
        raise click.UsageError("--mermaid cannot be combined with --json")
    inspection = read(path)
    pipeline = None if as_json else read_description(path)
    if as_mermaid:
        if pipeline is None:
            raise PublishError(f"no pipeline in {path}: only a version that `bakery compose` made can be drawn")
        click.echo(draw_mermaid(*pipeline))
        return
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
