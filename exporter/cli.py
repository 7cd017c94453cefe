"""Command line of the exporter: parse, call one function, print, exit."""

from __future__ import annotations

import contextlib
import dataclasses
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
from savedmodel_bakery.exporter import publish, resources, tensorflow_import
from savedmodel_bakery.exporter.errors import BakeError, PublishError
from savedmodel_bakery.exporter.recipe.options import recipe_options
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
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="Name the model is served under.")
@_OUT
@_VERSION
@click.option(
    "--recipe",
    "recipe_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="TOML file with any of the options below; flags win.",
)
@recipe_options
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
    tensorflow_import.import_tensorflow()
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
