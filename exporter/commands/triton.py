"""The command `triton`: write a SavedModel or a pipeline for Triton."""

from __future__ import annotations

from pathlib import Path

import click

from savedmodel_bakery.exporter.commands import options
from savedmodel_bakery.exporter.commands.running import clean_end_on_signals

EXAMPLES = """\b
Examples:
  bakery triton saved_model/efficientnet_lite0
  bakery triton saved_model/flowers/2 --out models --instances 2 --max-queue-delay-us 2000
  bakery triton saved_model/distance --max-batch-size 64
  bakery triton add_sub_mul.toml
"""


@click.command(epilog=EXAMPLES)
@click.argument("model", metavar="SERVABLE|PIPELINE", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("models"),
    show_default=True,
    help="Folder of Triton's models; a version is written to OUT/NAME/VERSION.",
)
@options.name("Name of the model on Triton.  [default: that of the folder of versions, or of the pipeline]")
@click.option(
    "-n",
    "--signature-name",
    metavar="NAME",
    help="Signature of SERVABLE to run: a model of Triton has one.  [default: top_k if there is one, else "
    "serving_default]",
)
@click.option(
    "--max-batch-size",
    type=click.IntRange(0, 2**31 - 1),
    metavar="ROWS",
    help="Let Triton join requests up to this number of rows, which is also the most that a request may have; 0 is for "
    "signatures whose rows are not independent, and the first dimension of tensors is then one like the others.  "
    "[default: 32 for models baked for images, else 0]",
)
@click.option(
    "--max-queue-delay-us",
    type=click.IntRange(0, 60_000_000),
    default=0,
    show_default=True,
    help="How long a request may wait for others to be joined with.",
)
@click.option(
    "--instances",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Processes that run the model, each with a copy of it; with --gpu, on each GPU.",
)
@click.option("--gpu", is_flag=True, help="Run the model on the GPUs.")
def triton(
    model: Path,
    out: Path,
    name: str | None,
    signature_name: str | None,
    max_batch_size: int | None,
    max_queue_delay_us: int,
    instances: int,
    gpu: bool,
) -> None:
    """Write a SavedModel or a pipeline into a model repository of NVIDIA Triton.

    SERVABLE is the folder of a version, or of versions, of which the newest is taken. PIPELINE is a TOML file: each of
    its steps becomes the model PIPELINE.STEP, and an ensemble connects them. Prints the paths of the versions in the
    repository.
    """
    from savedmodel_bakery.exporter.triton.config import Options
    from savedmodel_bakery.exporter.triton.export import export_pipeline, export_servable

    if model.is_file() and signature_name is not None:
        raise click.UsageError("--signature-name is for a SERVABLE: a pipeline file states the signature of each step")
    model_options = Options(
        max_batch_size=max_batch_size, instances=instances, gpu=gpu, max_queue_delay_us=max_queue_delay_us
    )
    with clean_end_on_signals():
        if model.is_file():
            paths = export_pipeline(model, out, name=name, options=model_options)
        else:
            paths = export_servable(model, out, name=name, signature_name=signature_name, options=model_options)
    for path in paths:
        click.echo(path)
