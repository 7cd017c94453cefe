"""Command line of the exporter: parse, call one function, print, exit."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from savedmodel_bakery.exporter import inspect as inspection
from savedmodel_bakery.exporter import publish, resources
from savedmodel_bakery.exporter import recipe as recipes
from savedmodel_bakery.exporter import tensorflow_import as quiet
from savedmodel_bakery.exporter.errors import BakeError, PublishError, RecipeError
from savedmodel_bakery.exporter.validation.tolerance import DEFAULT_TOLERANCE, Tolerance

DEFAULT_ROOT = Path("saved_model")
DEFAULT_NAME = "efficientnet_lite0"

_BAKE_EXAMPLES = """\b
Examples:
  python -m exporter bake --model efficientnet-lite0
  python -m exporter bake --model flowers.keras --name flowers --labels flowers.txt \\
      --crop none --resize bilinear --no-antialias --scale 0..1 --channels RGB \\
      --outputs probabilities
  python -m exporter bake --model keras:InceptionV3 --weights inception_v3.weights.h5 --name inception_v3
  python -m exporter bake --model https://tfhub.dev/google/imagenet/inception_v3/classification/4 \\
      --size 299 --name inception_v3
  python -m exporter bake --model mypackage.models:build --recipe recipe.toml
"""


class _RecipeValue(click.ParamType[Any]):
    """An option whose text the recipe itself checks, so that flag and file are refused in the same words."""

    def __init__(self, name: str, check: Callable[[str], Any], *, keep_text: bool = False) -> None:
        self.name = name
        self._check = check
        self._keep_text = keep_text

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The checked value; a refusal is a usage error."""
        try:
            checked = self._check(value)
        except RecipeError as error:
            self.fail(str(error), param, ctx)
        return value if self._keep_text else checked


def _tell(doing: str) -> None:
    click.echo(f"{doing} …", err=True)


_OUT = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_ROOT,
    show_default=True,
    help="Model root: the version goes to OUT/NAME/VERSION.",
)
_VERSION = click.option("--version", type=click.IntRange(min=0), help="Version number.  [default: the next one]")
_PHOTOS = click.option(
    "--photos",
    "photos_folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of photos to prove it on.  [default: the ones that come with the exporter]",
)
_PAGE = click.option(
    "--parity-html",
    "html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a page that shows what the model sees of each photo.",
)


def _tolerance(command: Callable[..., Any]) -> Callable[..., Any]:
    for kind, default, help_text in (
        ("rtol", DEFAULT_TOLERANCE.rtol, "… and this part of it besides."),
        ("atol", DEFAULT_TOLERANCE.atol, "A probability may differ from the reference pipeline's by this …"),
    ):
        command = click.option(
            f"--parity-{kind}", type=click.FloatRange(0, 1), default=default, show_default=True, help=help_text
        )(command)
    return command


@click.group(context_settings={"auto_envvar_prefix": "BAKERY", "max_content_width": 110})
def main() -> None:
    """Bake an image classifier, or a function, into a signed SavedModel that any tensorflow_model_server serves."""


@main.command(epilog=_BAKE_EXAMPLES)
@click.option(
    "--model",
    help="efficientnet-lite0, -lite1, -lite2; keras:NAME; a TF Hub or Kaggle URL, or hub:FOLDER; a .keras or .h5 file; "
    "a SavedModel's folder; package.module:callable.",
)
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="Name the model is served under.")
@_OUT
@_VERSION
@click.option(
    "--recipe",
    "recipe_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="TOML file with any of the options below; flags win.",
)
@click.option("--weights", metavar="none|imagenet|FILE", help="Of keras:NAME.  [default: imagenet]")
@click.option("--source-signature", help="Signature of a SavedModel or module.  [default: serving_default]")
@click.option("--source-input", help="Alias of that signature's input.  [default: its only one]")
@click.option("--source-output", help="Alias of that signature's output.  [default: its only one]")
@click.option("--labels", help="A set that comes with the exporter (imagenet, imagenet1001) or a file.")
@click.option(
    "--size", type=_RecipeValue("SIDE|HxW", recipes.parse_size), help="Height and width of the network's input."
)
@click.option("--resize", type=click.Choice(recipes.RESIZE_METHODS), help="How pixels are interpolated.")
@click.option("--antialias/--no-antialias", default=None, help="Whether making smaller averages over what is left out.")
@click.option(
    "--crop",
    type=_RecipeValue("none|letterbox|FRACTION", recipes.parse_crop, keep_text=True),
    help="Central square as a part of the shorter side (7/8), none: stretch the whole image, or letterbox: pad it.",
)
@click.option(
    "--scale",
    type=_RecipeValue("NAME|MEAN:STD", recipes.parse_scale, keep_text=True),
    help=f"What the network sees of pixels 0..255: {', '.join(recipes.SCALES)}, or mean and deviation.",
)
@click.option(
    "--channels",
    type=click.Choice(recipes.CHANNEL_ORDERS, case_sensitive=False),
    help="Order of colours the network was trained on, or GRAY.",
)
@click.option("--outputs", type=click.Choice(recipes.OUTPUTS), help="What the network gives; logits are softmaxed.")
@click.option("--orientation", type=click.Choice(recipes.ORIENTATIONS), help="Turn photos upright.  [default: exif]")
@click.option(
    "--decode",
    type=click.Choice(recipes.DECODERS),
    help="Every pixel of a JPEG photo, or fewer where it is much too large.  [default: exact]",
)
@click.option(
    "--background",
    type=_RecipeValue("R,G,B", functools.partial(recipes.parse_colour, name="background"), keep_text=True),
    help="What transparent pixels let through.  [default: 255,255,255]",
)
@click.option(
    "--padding",
    type=_RecipeValue("R,G,B", functools.partial(recipes.parse_colour, name="padding"), keep_text=True),
    help="What a letterbox is filled up with.  [default: 0,0,0]",
)
@click.option("--max-pixels", type=click.IntRange(min=1), help="Larger pictures are refused.  [default: 100000000]")
@click.option("--top-k", type=click.IntRange(min=1), help="Labels an answer lists.  [default: 5]")
@click.option(
    "--optimise",
    type=_RecipeValue("none|STEP,STEP…", recipes.parse_optimise, keep_text=True),
    help="How the network is made faster without changing its answers: some of "
    f"{', '.join(recipes.OPTIMISATIONS)}.  [default: all of them]",
)
@click.option(
    "--precision",
    type=click.Choice(recipes.PRECISIONS),
    help="What the network computes in; with 16 bits answers change, see --parity-atol.  [default: float32]",
)
@click.option(
    "--batch-max",
    type=click.IntRange(0, recipes.MAX_BATCH),
    help="Let requests that are under way together share runs of the network, of so many images at most.  "
    "[default: 0, each alone]",
)
@click.option(
    "--batch-timeout-us",
    type=click.IntRange(0, recipes.MAX_BATCH_TIMEOUT_US),
    help="How long an image waits for others, in microseconds; 0: only while the network is busy.  [default: 0]",
)
@click.option(
    "--batch-threads",
    type=click.IntRange(1, recipes.MAX_BATCH_THREADS),
    help="Batches that are computed at the same time.  [default: 1]",
)
@click.option(
    "--allowed-batch-sizes",
    type=_RecipeValue("SIZE,SIZE…", recipes.parse_batch_sizes, keep_text=True),
    help="Sizes that batches are filled up to; the last is the one of --batch-max.  [default: all]",
)
@_PHOTOS
@_tolerance
@click.option("--parity/--no-parity", "is_refused", default=True, help="Whether to refuse what is beyond tolerance.")
@_PAGE
def bake(
    name: str,
    out: Path,
    version: int | None,
    recipe_file: Path | None,
    photos_folder: Path | None,
    parity_atol: float,
    parity_rtol: float,
    is_refused: bool,
    html: Path | None,
    **options: Any,
) -> None:
    """Bake a model, prove that it answers right and publish it; prints the path of the new version."""
    base_path = out / _checked_name(name)
    with _tensorflow():
        from savedmodel_bakery.exporter.bake import bake as run

        baked = run(
            base_path=base_path,
            version=version,
            same_model=click.get_current_context().get_parameter_source("name") is ParameterSource.DEFAULT,
            recipe_file=recipe_file,
            options=options,
            photos=resources.photos_in(photos_folder) if photos_folder else None,
            tolerance=Tolerance(atol=parity_atol, rtol=parity_rtol) if is_refused else None,
            parity_page=html,
            progress=_tell,
        )
    agreement, worst = baked.proof.agreement, baked.proof.report.worst
    click.echo(
        f"verified on {agreement.photos} photos: scores within {agreement.max_difference:.1g} of the network's, "
        f"{worst.probability:.1g} of the reference pipeline's",
        err=True,
    )
    click.echo(baked.path)


_FUNCTION_EXAMPLES = """\b
Examples:
  python -m exporter function mypackage.sums:add_ten --input x:float64[?,?,?]
  python -m exporter function mypackage.sums:distance --input a:float32[?] --input b:float32[?] --name distance
  python -m exporter function mypackage.photos:shrink --input image:string[] --example photo.npz
"""


@main.command(epilog=_FUNCTION_EXAMPLES)
@click.argument("function", metavar="PACKAGE.MODULE:CALLABLE")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="NAME:TYPE[SIZES]",
    help="An input, in the order of the arguments; ? is any size, [] a scalar, [...] any shape. Repeatable.",
)
@click.option("--name", help="Name the model is served under.  [default: the function's]")
@_OUT
@_VERSION
@click.option(
    "--example",
    "example_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE.npz",
    help="Inputs to check it with.  [default: made up]",
)
def function(
    function: str, inputs: tuple[str, ...], name: str | None, out: Path, version: int | None, example_file: Path | None
) -> None:
    """Bake a TensorFlow function, check it in a fresh process and publish it; prints the path of the new version."""
    base_path = out / _checked_name(function.rpartition(":")[2] if name is None else name)
    with _tensorflow():
        from savedmodel_bakery.exporter.function.bake import bake_function
        from savedmodel_bakery.exporter.function.inputs import parse_input, read_example

        path = bake_function(
            base_path=base_path,
            name=function,
            inputs=[parse_input(text) for text in inputs],
            version=version,
            example=read_example(example_file) if example_file else None,
            progress=_tell,
        )
    click.echo(path)


@main.command("parity")
@click.argument("saved_model", type=click.Path(path_type=Path, exists=True, file_okay=False))
@_PHOTOS
@_tolerance
@_PAGE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def report_parity(
    saved_model: Path,
    photos_folder: Path | None,
    parity_atol: float,
    parity_rtol: float,
    html: Path | None,
    as_json: bool,
) -> None:
    """Compare the version in SAVED_MODEL with the reference pipeline of its source, photo by photo.

    The reference decodes, crops and resizes with Pillow and NumPy and calls the network itself. Exits with 1 where a
    photo is beyond tolerance.
    """
    with _tensorflow():
        from savedmodel_bakery.exporter.validation import page
        from savedmodel_bakery.exporter.validation import validate as proving

        if html:
            page.check_writable(html)
        report, shown = proving.review(
            saved_model,
            resources.photos_in(photos_folder) if photos_folder else resources.example_photos(),
            Tolerance(atol=parity_atol, rtol=parity_rtol),
            _tell,
        )
        if html:
            page.write(html, report, shown)
    click.echo(json.dumps(report.to_json()) if as_json else page.table(report))
    with _refusals():
        report.check()


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(path: Path, as_json: bool) -> None:
    """Show the signatures, recipe and size of the version in PATH."""
    with _refusals():
        found = inspection.inspect(path)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), default=str))
        return
    click.echo(f"{found.path}: {_readable(found.size_bytes)}, of which weights {_readable(found.weights_bytes)}")
    for signature in found.signatures:
        click.echo(f"\n{signature.name} ({signature.method})")
        for arrow, tensors in (("→", signature.inputs), ("←", signature.outputs)):
            for tensor in tensors:
                click.echo(f"  {arrow} {tensor}")
    click.echo("\nrecipe" if found.recipe else "\nno recipe: this SavedModel was not baked here")
    click.echo("".join(f"  {line}\n" for line in (found.recipe or "").splitlines()), nl=False)


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def versions(path: Path, as_json: bool) -> None:
    """List what is published under PATH (OUT/NAME), lowest version first."""
    with _refusals():
        found = publish.published_versions(path)
        if not found:
            raise PublishError(f"no version is published under {path}; versions are folders named 1, 2, 3 …")
    rows: list[dict[str, Any]] = [
        {
            "version": version,
            "path": str(folder),
            "size_bytes": inspection.size_of(folder),
            "published": datetime.fromtimestamp(folder.stat().st_mtime, timezone.utc).isoformat(timespec="seconds"),
        }
        for version, folder in found.items()
    ]
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        click.echo(f"{row['version']}\t{_readable(row['size_bytes'])}\t{row['published']}\t{row['path']}")


@contextlib.contextmanager
def _tensorflow() -> Iterator[None]:
    """Work with models: TensorFlow is there and quiet, refusals are told, and SIGTERM leaves nothing staged behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    quiet.import_tensorflow()
    # What the user's own code prints is not what a script reads here.
    with _refusals(), contextlib.redirect_stdout(sys.stderr):
        yield


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turn a BakeError into one line on stderr and exit code 1."""
    try:
        yield
    except BakeError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


def _checked_name(name: str) -> str:
    if not name or name in (".", "..") or any(character in name for character in "/:\\"):
        raise click.BadParameter(
            f"{name!r} is no model name; allowed is any text but . and .., without / \\ and :", param_hint="--name"
        )
    return name


def _readable(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.1f} kB"
