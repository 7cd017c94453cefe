"""The commands that publish a version: `bake`, `function` and `compose`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from savedmodel_bakery.exporter.commands import options
from savedmodel_bakery.exporter.commands.output import open_output
from savedmodel_bakery.exporter.commands.running import NO_EVIDENCE, print_progress, print_warning, tensorflow
from savedmodel_bakery.exporter.publish import check_same_model, default_name
from savedmodel_bakery.exporter.recipe import RecipeFile, read_recipe_file
from savedmodel_bakery.groups import Command
from savedmodel_bakery.storage.folders import check_name
from savedmodel_bakery.storage.store import Store

if TYPE_CHECKING:
    from savedmodel_bakery.exporter.bake import BakeResult

_PREPARATION = {"like", "crop", "resize", "antialias", "scale", "channels"}  # of photos, as the user states it

_BRIEF = {
    "labels": "Names of the classes: a file (.txt, .json, .csv, .pbtxt), imagenet or imagenet1001.",
    "task": "classify, binary, multilabel, detect, segment, embed, regress, keypoints, image, tensors or heads.",
    "outputs": "What a classifier returns: probabilities or logits.",
    "like": "Prepare photos as a known network or library does, such as keras:MobileNetV2.",
    "predictions": "What the network answered in training; finds how photos are prepared, and checks it.",
    "photos": None,
    "precision": "float32 (default), bfloat16, float16 or int8.",
    "recipe_file": "TOML file with options in snake_case.",
    "name": None,
    "out": None,
}
"""The options that `bake --help` shows, with shorter texts."""

_BAKE_EXAMPLES = """\b
Examples:
  bakery bake efficientnet-lite0
  bakery bake flowers.keras --labels flowers.txt --photos photos --predictions predictions.csv
  bakery bake flowers.keras --labels flowers.txt --crop none --resize bilinear --no-antialias \\
      --scale 0..1 --channels RGB --outputs probabilities
  bakery bake pets.keras --labels pets.txt --outputs probabilities --like keras:MobileNetV2
  bakery bake keras:InceptionV3 --weights inception_v3.weights.h5 --name inception_v3
  bakery bake https://tfhub.dev/google/imagenet/inception_v3/classification/4 --size 299 --name inception_v3
  bakery bake mypackage.models:build --recipe recipe.toml
  bakery bake flowers.keras --recipe flowers.toml --precision int8 --calibration photos --name flowers_int8
  bakery bake converted --reference shapes.onnx --recipe shapes.toml
"""
_FUNCTION_EXAMPLES = """\b
Examples:
  bakery function mypackage.sums:add_ten --input x:float64[?,?,?]
  bakery function mypackage.sums:distance --input a:float32[?] --input b:float32[?] --name distance
  bakery function mypackage.photos:shrink --input image:string[] --example photo.npz
"""
_COMPOSE_EXAMPLES = """\b
Examples:
  bakery compose add_sub_mul.toml
  bakery compose pets.toml --photos photos --name pets
  bakery compose distances.toml --example points.npz
"""


@click.command(cls=Command, epilog=_BAKE_EXAMPLES, brief=_BRIEF, see="docs/reference/recipe.md explains them")
@click.argument("source", metavar="[MODEL]", required=False)
@options.recipe
@click.option(
    "--recipe",
    "recipe_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="TOML file with any of the options above, in snake_case, and name; options override it. Its relative paths "
    "refer to its folder.",
)
@options.name("Name to serve the model under.  [default: the recipe's, or derived from MODEL]")
@options.out
@options.version
@options.photos
@options.evidence
@options.input_values
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
    source: str | None,
    recipe_file: Path | None,
    name: str | None,
    out: Path | Store,
    version: int | None,
    photos: list[Path] | None,
    inputs: str | None,
    predictions: str | None,
    labelled: Path | None,
    input_values: Path | None,
    search_seconds: float,
    require_parity: bool,
    reference: Path | None,
    min_agreement: float | None,
    parity_html: Path | None,
    verbose: bool,
    **fields: Any,
) -> None:
    """Bake a vision model, validate it and publish it.

    MODEL, or --model, is the network. It may classify, tag, detect, segment, embed or return numbers; see --task.
    Prints the path of the new version.
    """
    if source is not None:
        if fields["model"] is not None:
            raise click.UsageError(f"two models given, {source} and --model {fields['model']}: pass one")
        fields["model"] = source
    tolerance = {part: fields.pop(part) for part in options.TOLERANCE_PARTS}
    stated = {option: value for option, value in fields.items() if value is not None}
    file_name, values = read_recipe_file(recipe_file) if recipe_file else RecipeFile(None, {})
    name, recipe = file_name if name is None else name, {**values, **stated}
    if "model" not in recipe:
        raise click.UsageError("no model given: pass --model, or state it in the --recipe file")
    # Before the import of TensorFlow, which can take half a minute.
    folder_name = check_name(default_name(recipe["model"]) if name is None else name)
    root, finish = open_output(out, folder_name, version)
    if name is None and isinstance(out, Store):
        check_same_model(out.below(folder_name), recipe["model"])
    from savedmodel_bakery.exporter.validation.session import SessionProcess

    with tensorflow("bake", verbose=verbose, beside=SessionProcess()) as session:
        from savedmodel_bakery.exporter.bake import bake as run

        result = run(
            out=root,
            name=name,
            version=version,
            recipe=recipe,
            photos=photos,
            inputs=inputs,
            predictions=predictions,
            labelled=labelled,
            input_values=input_values,
            search_seconds=search_seconds,
            **tolerance,
            require_parity=require_parity,
            reference=reference,
            min_agreement=min_agreement,
            parity_html=parity_html,
            progress=print_progress,
            session=session,
        )
    for judgement in result.evidence:
        click.echo(f"{judgement.to_table()}\nthe recipe {judgement.summary}", err=True)
    if not result.evidence and not _PREPARATION.isdisjoint(recipe):
        click.echo(NO_EVIDENCE, err=True)
    click.echo(_describe_bake(result, reference), err=True)
    print_warning(result.parity.contradiction)
    print_warning(result.parity.warning)
    click.echo(finish(result.path))


def _describe_bake(result: BakeResult, reference: Path | None) -> str:
    """Return how the answers of a new version compare."""
    verified = f"verified on {len(result.parity.photos)} photos: "
    if result.parity.int8 is not None:
        return "\n".join([f"{verified}pixels are within tolerance", *result.parity.int8.describe()])
    assert result.agreement
    onnx = result.onnx_agreement
    of_onnx = "" if onnx is None else f"{onnx.max_difference:.1g} of {reference or result.recipe.source.model}'s, "
    return (
        f"{verified}answers within {result.agreement.max_difference:.1g} of the network's, "
        f"{of_onnx}{result.parity.worst.difference:.1g} of the reference pipeline's"
    )


@click.command(epilog=_FUNCTION_EXAMPLES)
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
    out: Path | Store,
    version: int | None,
    example_file: Path | None,
    verbose: bool,
) -> None:
    """Bake a TensorFlow function, validate it and publish it.

    Prints the path of the new version.
    """
    name = function.rpartition(":")[2] if name is None else name
    root, finish = open_output(out, check_name(name), version)
    with tensorflow("function", verbose=verbose):
        from savedmodel_bakery.exporter.function.bake import bake_function
        from savedmodel_bakery.exporter.function.function_module import parse_input, read_example

        path = bake_function(
            base_path=root / name,
            name=function,
            inputs=[parse_input(text) for text in inputs],
            version=version,
            example=read_example(example_file) if example_file else None,
            progress=print_progress,
        )
    click.echo(finish(path))


@click.command(epilog=_COMPOSE_EXAMPLES)
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
    out: Path | Store,
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
    name = check_name(checked.pipeline.name if name is None else name)
    root, finish = open_output(out, name, version)
    base_path = root / name
    check_base_path(checked, base_path)
    with tensorflow("compose", verbose=verbose):
        from savedmodel_bakery.exporter.function.function_module import read_example
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
    click.echo(finish(path))
