"""The command `parity`: compare a version with its source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.exporter.commands import options
from savedmodel_bakery.exporter.commands.running import print_progress, print_warning, tensorflow
from savedmodel_bakery.exporter.publish import RECIPE_FILE
from savedmodel_bakery.exporter.recipe import Recipe, convert_values, read_recipe_file
from savedmodel_bakery.exporter.resources import example_photos

EXAMPLES = """\b
Examples:
  bakery parity saved_model/efficientnet_lite0/1
  bakery parity saved_model/flowers/1 --photos holiday --parity-html parity.html
  bakery parity saved_model/flowers/1 --model old/flowers.keras --labels old/flowers.txt
"""
_MOVED = "Use this instead of the recipe's {}, whose path is relative to the working directory of the bake."


@click.command(epilog=EXAMPLES)
@click.argument("saved_model", type=click.Path(path_type=Path, exists=True, file_okay=False))
@options.photos
@options.tolerance
@options.min_agreement
@options.parity_html
@click.option("--model", metavar="MODEL", help=_MOVED.format("model"))
@click.option("--labels", metavar="SET|FILE", help=_MOVED.format("labels"))
@click.option("--weights", metavar="FILE", help=_MOVED.format("weights"))
@options.json
@options.verbose
def parity(
    saved_model: Path,
    photos: list[Path] | None,
    min_agreement: float | None,
    parity_html: Path | None,
    model: str | None,
    labels: str | None,
    weights: str | None,
    as_json: bool,
    verbose: bool,
    **tolerance: float | None,
) -> None:
    """Compare a version with the reference pipeline of its source, photo by photo.

    The reference decodes, crops and resizes with Pillow and NumPy, and calls the network directly. Exits with 1 if a
    photo is beyond tolerance.
    """
    moved = convert_values({"model": model, "labels": labels, "weights": weights})
    recipe = Recipe.from_values({**_read_recipe(saved_model), **moved})
    with tensorflow("parity", verbose=verbose):
        from savedmodel_bakery.exporter.validation.report import check_writable, write_html_page
        from savedmodel_bakery.exporter.validation.validate import compare_with_source

        if parity_html:
            check_writable(parity_html)
        report, pictures = compare_with_source(
            saved_model,
            recipe,
            photos or example_photos(),
            lambda task: task.tolerance.replaced(**tolerance),
            print_progress,
            min_agreement=min_agreement,
        )
        if parity_html:
            write_html_page(parity_html, report, pictures)
    click.echo(json.dumps(report.to_json()) if as_json else report.to_table())
    print_warning(report.warning)
    report.check()


def _read_recipe(version: Path) -> dict[str, Any]:
    if not (version / RECIPE_FILE).is_file():
        raise PublishError(f"no {RECIPE_FILE} in {version}: pass the folder of a version that `bakery bake` made")
    return read_recipe_file(version / RECIPE_FILE).values
