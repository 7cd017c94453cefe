"""The command `compose`: compose a pipeline into one SavedModel."""

from __future__ import annotations

from pathlib import Path

import click

from savedmodel_bakery.exporter.commands import options
from savedmodel_bakery.exporter.commands.running import print_progress, tensorflow
from savedmodel_bakery.exporter.publish import check_free, check_name

EXAMPLES = """\b
Examples:
  bakery compose add_sub_mul.toml
  bakery compose pets.toml --photos photos --name pets
  bakery compose distances.toml --example points.npz
"""


@click.command(epilog=EXAMPLES)
@click.argument("pipeline_file", metavar="PIPELINE.toml", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@options.name("Name to serve the pipeline under.  [default: the name that the file states, or its own]")
@options.out
@options.version
@options.photos
@options.example
@options.verbose
def compose(
    pipeline_file: Path,
    name: str | None,
    out: Path,
    version: int | None,
    photos: list[Path] | None,
    example_file: Path | None,
    verbose: bool,
) -> None:
    """Compose the steps of a pipeline into one SavedModel, validate it and publish it.

    The file connects signatures of SavedModels by the names of tensors. Prints the path of the new version.
    """
    from savedmodel_bakery.exporter.pipeline.check import check_base_path, check_pipeline
    from savedmodel_bakery.exporter.pipeline.pipeline_file import read_pipeline_file

    if photos and example_file:
        raise click.UsageError("--photos cannot be combined with --example, which has all inputs")
    checked = check_pipeline(read_pipeline_file(pipeline_file))
    base_path = out / check_name(checked.pipeline.name if name is None else name)
    check_base_path(checked, base_path)
    check_free(base_path, version)
    with tensorflow("compose", verbose=verbose):
        from savedmodel_bakery.exporter.function.inputs import read_example
        from savedmodel_bakery.exporter.pipeline.compose import compose as run

        path, examples = run(
            checked,
            base_path=base_path,
            version=version,
            photos=photos,
            example=read_example(example_file) if example_file else None,
            progress=print_progress,
        )
    requests = "1 request" if examples == 1 else f"{examples} requests"
    click.echo(f"verified on {requests}: the outputs equal those of the steps called one after another", err=True)
    click.echo(path)
