"""Command line of the exporter: parses arguments, calls one function, prints its result."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from savedmodel_bakery.exporter.errors import BakeError, PublishError
from savedmodel_bakery.exporter.publish import check_free, check_name, default_name, published_versions
from savedmodel_bakery.exporter.recipe import Recipe, RecipeFile, convert_values, read_recipe_file
from savedmodel_bakery.exporter.recipe.options import recipe_options
from savedmodel_bakery.extras import MissingPackageError, naming_extras
from savedmodel_bakery.interrupts import (
    INTERRUPTED,
    exit_now,
    exit_on_interrupt,
    ignore_traceback_of_next_interrupt,
    print_interrupted,
)
from savedmodel_bakery.output import os_error_text
from savedmodel_bakery.tensorflow_log import show_log

if TYPE_CHECKING:
    from savedmodel_bakery.exporter.bake import BakeResult

F = TypeVar("F", bound=Callable[..., Any])

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class _FloatRange(click.FloatRange):
    """A FloatRange that rejects NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType.convert`."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a valid number.", param, ctx)
        return number


_OUT = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("saved_model"),
    show_default=True,
    help="Folder of models; the version is written to OUT/NAME/VERSION.",
)
_VERSION = click.option("--version", type=click.IntRange(min=0), help="Version number.  [default: the next one]")
_PHOTOS = click.option(
    "--photos",
    "photos_folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of photos to validate on.  [default: the example photos of the exporter]",
)
_EXAMPLE = click.option(
    "--example",
    "example_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE.npz",
    help="Inputs to validate it with.  [default: generated]",
)
_MIN_AGREEMENT = click.option(
    "--min-agreement",
    type=_FloatRange(0, 1),
    show_default="0.95",
    help="For precision int8: share of photos whose label must be that of float32.",
)
_PARITY_HTML = click.option(
    "--parity-html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for an HTML page that shows the network's input for each photo.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_VERBOSE = click.option("-v", "--verbose", is_flag=True, help="Show the log of TensorFlow.")


def _tolerance_options(command: F) -> F:
    for name, default, text in (
        ("rtol", "0; task regress 0.01", "… plus this part of the reference's answer."),
        (
            "atol",
            "0.01; task embed 0.001; regress 0.0001",
            "Allowed difference of an answer from the reference pipeline's …",
        ),
    ):
        command = click.option(f"--parity-{name}", type=_FloatRange(0), show_default=default, help=text)(command)
    for name, default, text in (
        ("iou", "0.9", "Intersection over union from which on two boxes of task detect agree."),
        ("share", "0.99", "Part of the pixels of task segment, or of the boxes of task detect, that must agree."),
    ):
        command = click.option(f"--parity-{name}", type=_FloatRange(0, 1), show_default=default, help=text)(command)
    return command


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Turn an expected error into one line on stderr and exit code 1, an interrupt into one and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        ignore_traceback_of_next_interrupt()
        print_interrupted()
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        raise  # click ends the command silently
    except (BakeError, MissingPackageError) as error:
        message = str(error)
    except OSError as error:  # such as for a full disk behind stdout
        message = os_error_text(error)
    else:
        return
    click.echo(f"error: {message}", err=True)
    sys.exit(1)


@click.group(context_settings={**CONTEXT, "auto_envvar_prefix": "BAKERY"})
def main() -> None:
    """Bake a vision model or a function into a signed SavedModel for any tensorflow_model_server."""


_BAKE_EXAMPLES = """\b
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


@main.command(epilog=_BAKE_EXAMPLES, context_settings=CONTEXT)
@recipe_options
@click.option(
    "--recipe",
    "recipe_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="TOML file with any of the options above, in snake_case, and name; options override it. Its relative paths "
    "refer to its folder.",
)
@click.option("--name", help="Name to serve the model under.  [default: the recipe's, or derived from --model]")
@_OUT
@_VERSION
@_PHOTOS
@_tolerance_options
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
@_MIN_AGREEMENT
@_PARITY_HTML
@_VERBOSE
@_errors()
def bake(
    recipe_file: Path | None,
    name: str | None,
    out: Path,
    version: int | None,
    photos_folder: Path | None,
    parity_atol: float | None,
    parity_rtol: float | None,
    parity_share: float | None,
    parity_iou: float | None,
    require_parity: bool,
    reference: Path | None,
    min_agreement: float | None,
    parity_html: Path | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Bake a vision model, validate it and publish it.

    It may classify, tag, detect, segment, embed or return numbers; see --task. Prints the path of the new version.
    """
    _check_name(name)
    stated = {option: value for option, value in options.items() if value is not None}
    file_name, values = read_recipe_file(recipe_file) if recipe_file else RecipeFile(None, {})
    name, recipe = file_name if name is None else name, {**values, **stated}
    if "model" not in recipe:
        raise click.UsageError("no model given: pass --model, or state it in the --recipe file")
    # Before the import of TensorFlow, which can take half a minute.
    check_free(out / check_name(default_name(recipe["model"]) if name is None else name), version)
    with _tensorflow("bake", verbose=verbose):
        from savedmodel_bakery.exporter import resources
        from savedmodel_bakery.exporter.bake import bake as run

        result = run(
            out=out,
            name=name,
            version=version,
            recipe=recipe,
            photos=resources.photos_in(photos_folder) if photos_folder else None,
            atol=parity_atol,
            rtol=parity_rtol,
            share=parity_share,
            iou=parity_iou,
            require_parity=require_parity,
            reference=reference,
            min_agreement=min_agreement,
            parity_html=parity_html,
            progress=_print_progress,
        )
    click.echo(_describe_bake(result, reference), err=True)
    _print_warning(result.parity.contradiction)
    _print_warning(result.parity.warning)
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


_FUNCTION_EXAMPLES = """\b
Examples:
  bakery function mypackage.sums:add_ten --input x:float64[?,?,?]
  bakery function mypackage.sums:distance --input a:float32[?] --input b:float32[?] --name distance
  bakery function mypackage.photos:shrink --input image:string[] --example photo.npz
"""


@main.command(epilog=_FUNCTION_EXAMPLES, context_settings=CONTEXT)
@click.argument("function", metavar="PACKAGE.MODULE:CALLABLE")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="NAME:TYPE[SIZES]",
    help="An input, in the order of the arguments; ? is any size, [] a scalar, [...] any shape. Repeatable.",
)
@click.option("--name", help="Name to serve the function under.  [default: the function's]")
@_OUT
@_VERSION
@_EXAMPLE
@_VERBOSE
@_errors()
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
    _check_name(name)
    check_free(out / name, version)
    with _tensorflow("function", verbose=verbose):
        from savedmodel_bakery.exporter.function.bake import bake_function
        from savedmodel_bakery.exporter.function.inputs import parse_input, read_example

        path = bake_function(
            base_path=out / name,
            name=function,
            inputs=[parse_input(text) for text in inputs],
            version=version,
            example=read_example(example_file) if example_file else None,
            progress=_print_progress,
        )
    click.echo(path)


_COMPOSE_EXAMPLES = """\b
Examples:
  bakery compose add_sub_mul.toml
  bakery compose pets.toml --photos photos --name pets
  bakery compose distances.toml --example points.npz
"""


@main.command(epilog=_COMPOSE_EXAMPLES, context_settings=CONTEXT)
@click.argument("pipeline_file", metavar="PIPELINE.toml", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", help="Name to serve the pipeline under.  [default: the name that the file states, or its own]")
@_OUT
@_VERSION
@_PHOTOS
@_EXAMPLE
@_VERBOSE
@_errors()
def compose(
    pipeline_file: Path,
    name: str | None,
    out: Path,
    version: int | None,
    photos_folder: Path | None,
    example_file: Path | None,
    verbose: bool,
) -> None:
    """Compose the steps of a pipeline into one SavedModel, validate it and publish it.

    The file connects signatures of SavedModels by the names of tensors. Prints the path of the new version.
    """
    from savedmodel_bakery.exporter.pipeline.check import check_base_path, check_pipeline
    from savedmodel_bakery.exporter.pipeline.pipeline_file import read_pipeline_file

    _check_name(name)
    if photos_folder and example_file:
        raise click.UsageError("--photos cannot be combined with --example, which has all inputs")
    checked = check_pipeline(read_pipeline_file(pipeline_file))
    base_path = out / check_name(checked.pipeline.name if name is None else name)
    check_base_path(checked, base_path)
    check_free(base_path, version)
    with _tensorflow("compose", verbose=verbose):
        from savedmodel_bakery.exporter import resources
        from savedmodel_bakery.exporter.function.inputs import read_example
        from savedmodel_bakery.exporter.pipeline.compose import compose as run

        composition = run(
            checked,
            base_path=base_path,
            version=version,
            photos=resources.photos_in(photos_folder) if photos_folder else None,
            example=read_example(example_file) if example_file else None,
            progress=_print_progress,
        )
    requests = "1 request" if composition.examples == 1 else f"{composition.examples} requests"
    click.echo(f"verified on {requests}: the outputs equal those of the steps called one after another", err=True)
    click.echo(composition.path)


_PARITY_EXAMPLES = """\b
Examples:
  bakery parity saved_model/efficientnet_lite0/1
  bakery parity saved_model/flowers/1 --photos holiday --parity-html parity.html
  bakery parity saved_model/flowers/1 --model old/flowers.keras --labels old/flowers.txt
"""
_MOVED = "Use this instead of the recipe's {}, whose path is relative to the working directory of the bake."


@main.command(epilog=_PARITY_EXAMPLES, context_settings=CONTEXT)
@click.argument("saved_model", type=click.Path(path_type=Path, exists=True, file_okay=False))
@_PHOTOS
@_tolerance_options
@_MIN_AGREEMENT
@_PARITY_HTML
@click.option("--model", metavar="MODEL", help=_MOVED.format("model"))
@click.option("--labels", metavar="SET|FILE", help=_MOVED.format("labels"))
@click.option("--weights", metavar="FILE", help=_MOVED.format("weights"))
@_JSON
@_VERBOSE
@_errors()
def parity(
    saved_model: Path,
    photos_folder: Path | None,
    parity_atol: float | None,
    parity_rtol: float | None,
    parity_share: float | None,
    parity_iou: float | None,
    min_agreement: float | None,
    parity_html: Path | None,
    model: str | None,
    labels: str | None,
    weights: str | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Compare a version with the reference pipeline of its source, photo by photo.

    The reference decodes, crops and resizes with Pillow and NumPy, and calls the network directly. Exits with 1 if a
    photo is beyond tolerance.
    """
    from savedmodel_bakery.exporter.inspect import read_recipe

    moved = convert_values({"model": model, "labels": labels, "weights": weights})
    recipe = Recipe.from_values({**read_recipe(saved_model), **moved})
    with _tensorflow("parity", verbose=verbose):
        from savedmodel_bakery.exporter import resources
        from savedmodel_bakery.exporter.validation.html_page import check_writable, write_html_page
        from savedmodel_bakery.exporter.validation.validate import compare_with_source

        if parity_html:
            check_writable(parity_html)
        comparison = compare_with_source(
            saved_model,
            recipe,
            resources.photos_in(photos_folder) if photos_folder else resources.example_photos(),
            lambda task: task.tolerance.replaced(
                atol=parity_atol, rtol=parity_rtol, share=parity_share, iou=parity_iou
            ),
            _print_progress,
            min_agreement=min_agreement,
        )
        report = comparison.report
        if parity_html:
            write_html_page(parity_html, report, comparison.pictures)
    click.echo(json.dumps(report.to_json()) if as_json else report.to_table())
    _print_warning(report.warning)
    report.check()


_INSPECT_EXAMPLES = """\b
Examples:
  bakery inspect saved_model/efficientnet_lite0/1
  bakery inspect saved_model/add_sub_mul/1 --svg add_sub_mul.svg
"""


@main.command(epilog=_INSPECT_EXAMPLES, context_settings=CONTEXT)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--svg",
    "svg_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File for a picture of a pipeline.",
)
@_JSON
@_errors()
def inspect(path: Path, svg_file: Path | None, as_json: bool) -> None:
    """Show the signatures, recipe and size of the version in PATH, and the steps of a pipeline.

    Also names the oldest TensorFlow in which bakes of this task and precision were tested.
    """
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
    size, weights = _format_size(inspection.size_bytes), _format_size(inspection.weights_bytes)
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


@main.command(epilog="\b\nExample:\n  bakery versions saved_model/efficientnet_lite0\n", context_settings=CONTEXT)
@click.argument("path", type=click.Path(path_type=Path))
@_JSON
@_errors()
def versions(path: Path, as_json: bool) -> None:
    """List the versions under PATH (OUT/NAME), lowest first."""
    from savedmodel_bakery.exporter.inspect import size_of

    folders = published_versions(path)
    if not folders:
        raise PublishError(f"no versions under {path}: versions are folders named 1, 2, 3 …")
    rows: list[dict[str, Any]] = [
        {
            "version": version,
            "path": str(folder),
            "size_bytes": size_of(folder),
            "published": datetime.fromtimestamp(folder.stat().st_mtime, timezone.utc).isoformat(timespec="seconds"),
        }
        for version, folder in folders.items()
    ]
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        click.echo(f"{row['version']}\t{_format_size(row['size_bytes'])}\t{row['published']}\t{row['path']}")


_TRITON_EXAMPLES = """\b
Examples:
  bakery triton saved_model/efficientnet_lite0
  bakery triton saved_model/flowers/2 --out models --instances 2 --max-queue-delay-us 2000
  bakery triton saved_model/distance --max-batch-size 64
  bakery triton add_sub_mul.toml
"""


@main.command(epilog=_TRITON_EXAMPLES, context_settings=CONTEXT)
@click.argument("model", metavar="SERVABLE|PIPELINE", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("models"),
    show_default=True,
    help="Folder of Triton's models; a version is written to OUT/NAME/VERSION.",
)
@click.option(
    "--name",
    help="Name of the model on Triton.  [default: that of the folder of versions, or of the pipeline]",
)
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
@_errors()
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
    from savedmodel_bakery.exporter.triton.config import Execution
    from savedmodel_bakery.exporter.triton.export import Options, export_pipeline, export_servable

    _check_name(name)
    if model.is_file() and signature_name is not None:
        raise click.UsageError("--signature-name is for a SERVABLE: a pipeline file states the signature of each step")
    execution = Execution(instances=instances, gpu=gpu, max_queue_delay_us=max_queue_delay_us)
    options = Options(max_batch_size=max_batch_size, execution=execution)
    with _clean_end_on_signals():
        if model.is_file():
            paths = export_pipeline(model, out, name=name, options=options)
        else:
            paths = export_servable(model, out, name=name, signature_name=signature_name, options=options)
    for path in paths:
        click.echo(path)


@contextlib.contextmanager
def _tensorflow(command: str, *, verbose: bool) -> Iterator[None]:
    """Import TensorFlow quietly; signals remove staged files, and output of the user's code goes to stderr."""
    if verbose:
        show_log()
    with (
        _clean_end_on_signals(),
        exit_on_interrupt(),
        naming_extras(command, "export"),
        contextlib.redirect_stdout(sys.stderr),
    ):
        from savedmodel_bakery.exporter.tensorflow_import import import_tensorflow

        import_tensorflow()
        yield


@contextlib.contextmanager
def _clean_end_on_signals() -> Iterator[None]:
    """In the block, SIGTERM and SIGHUP remove staged files before they end the process; nohup still works."""
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    handlers = {number: signal.signal(number, lambda received, _: exit_now(128 + received)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _check_name(name: str | None) -> None:
    if name is not None:
        try:
            check_name(name)
        except PublishError as error:
            raise click.BadParameter(str(error), param_hint="--name") from error


def _print_progress(step: str) -> None:
    click.echo(f"{step} …", err=True)


def _print_warning(warning: str) -> None:
    for line in warning.splitlines():
        click.echo(f"warning: {line}", err=True)


def _format_size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.1f} kB"
