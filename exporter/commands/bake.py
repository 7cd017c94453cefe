"""The command `bake`: bake a vision model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from savedmodel_bakery.exporter.commands import options
from savedmodel_bakery.exporter.commands.running import print_progress, print_warning, tensorflow
from savedmodel_bakery.exporter.publish import check_free, check_name, default_name
from savedmodel_bakery.exporter.recipe import RecipeFile, read_recipe_file

if TYPE_CHECKING:
    from savedmodel_bakery.exporter.bake import BakeResult

EXAMPLES = """\b
Examples:
  bakery bake --model efficientnet-lite0
  bakery bake --model flowers.keras --labels flowers.txt --crop none --resize bilinear --no-antialias \\
      --scale 0..1 --channels RGB --outputs probabilities
  bakery bake --model pets.keras --labels pets.txt --outputs probabilities --like keras:MobileNetV2
  bakery bake --model keras:InceptionV3 --weights inception_v3.weights.h5 --name inception_v3
  bakery bake --model https://tfhub.dev/google/imagenet/inception_v3/classification/4 --size 299 --name inception_v3
  bakery bake --model mypackage.models:build --recipe recipe.toml
  bakery bake --model flowers.keras --recipe flowers.toml --precision int8 --calibration photos --name flowers_int8
  bakery bake --model converted --reference shapes.onnx --recipe shapes.toml
"""


@click.command(epilog=EXAMPLES)
@options.recipe
@click.option(
    "--recipe",
    "recipe_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="TOML file with any of the options above, in snake_case, and name; options override it. Its relative paths "
    "refer to its folder.",
)
@options.name("Name to serve the model under.  [default: the recipe's, or derived from --model]")
@options.out
@options.version
@options.photos
@options.tolerance
@click.option(
    "--parity/--no-parity",
    "require_parity",
    default=True,
    show_default=True,
    help="Whether to reject a version beyond that tolerance.",
)
@click.option(
    "--reference",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE.onnx",
    help="ONNX model that the network was converted from; the version is rejected if its answers differ on the same "
    "pixels. Needs the extra onnx.",
)
@options.min_agreement
@options.parity_html
@options.verbose
def bake(
    recipe_file: Path | None,
    name: str | None,
    out: Path,
    version: int | None,
    photos: list[Path] | None,
    require_parity: bool,
    reference: Path | None,
    min_agreement: float | None,
    parity_html: Path | None,
    verbose: bool,
    **fields: Any,
) -> None:
    """Bake a vision model, validate it and publish it.

    It may classify, tag, detect, segment, embed or return numbers; see --task. Prints the path of the new version.
    """
    tolerance = {part: fields.pop(part) for part in options.TOLERANCE_PARTS}
    stated = {option: value for option, value in fields.items() if value is not None}
    file_name, values = read_recipe_file(recipe_file) if recipe_file else RecipeFile(None, {})
    name, recipe = file_name if name is None else name, {**values, **stated}
    if "model" not in recipe:
        raise click.UsageError("no model given: pass --model, or state it in the --recipe file")
    # Before the import of TensorFlow, which can take half a minute.
    check_free(out / check_name(default_name(recipe["model"]) if name is None else name), version)
    with tensorflow("bake", verbose=verbose):
        from savedmodel_bakery.exporter.bake import bake as run

        result = run(
            out=out,
            name=name,
            version=version,
            recipe=recipe,
            photos=photos,
            **tolerance,
            require_parity=require_parity,
            reference=reference,
            min_agreement=min_agreement,
            parity_html=parity_html,
            progress=print_progress,
        )
    click.echo(_describe_bake(result, reference), err=True)
    print_warning(result.parity.contradiction)
    print_warning(result.parity.warning)
    click.echo(result.path)


def _describe_bake(result: BakeResult, reference: Path | None) -> str:
    """Return how the answers of a new version compare."""
    verified = f"verified on {len(result.parity.photos)} photos: "
    if result.parity.int8 is not None:
        return "\n".join([f"{verified}pixels are within tolerance", *result.parity.int8.describe()])
    assert result.agreement
    onnx = result.onnx_agreement
    of_onnx = "" if onnx is None else f"{onnx.max_difference:.1g} of {reference}'s, "
    return (
        f"{verified}answers within {result.agreement.max_difference:.1g} of the network's, "
        f"{of_onnx}{result.parity.worst.difference:.1g} of the reference pipeline's"
    )
