"""The commands `inspect` and `versions`: show what a version contains, or a model's versions, without loading it."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.exporter.commands import options
from savedmodel_bakery.exporter.publish import (
    FUNCTION_FILE,
    PIPELINE_FILE,
    RECIPE_FILE,
    format_size,
    published_versions,
    size_of,
)
from savedmodel_bakery.exporter.tested_runtimes import oldest_version
from savedmodel_bakery.toml import parse_toml

EXAMPLES = """\b
Examples:
  bakery inspect saved_model/efficientnet_lite0/1
  bakery inspect saved_model/add_sub_mul/1 --mermaid
"""


@click.command(epilog=EXAMPLES)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--mermaid", "as_mermaid", is_flag=True, help="Print a pipeline as a Mermaid diagram, for Markdown.")
@options.json
def inspect(path: Path, as_mermaid: bool, as_json: bool) -> None:
    """Show the signatures, recipe and size of the version in PATH, and the steps of a pipeline.

    Also names the oldest TensorFlow in which bakes of this task and precision were tested.
    """
    from savedmodel_bakery.exporter.pipeline.description import draw_mermaid, read_description
    from savedmodel_bakery.exporter.signatures import read_signatures

    if as_mermaid and as_json:
        raise click.UsageError("--mermaid cannot be combined with --json")
    signatures = read_signatures(path)
    recipe_text = _read_recipe(path)
    try:
        recipe = parse_toml(recipe_text) if recipe_text else None
    except ValueError as error:
        raise PublishError(f"the recipe in {path} is damaged: {error}") from error
    oldest_tensorflow = oldest_version(recipe) if recipe else None
    size, weights = size_of(path), size_of(path / "variables")
    if as_json:
        inspection = {
            "path": str(path),
            "size_bytes": size,
            "weights_bytes": weights,
            "signatures": [dataclasses.asdict(signature) for signature in signatures],
            "recipe": recipe,
            "oldest_tensorflow": oldest_tensorflow,
        }
        click.echo(json.dumps(inspection))
        return
    if as_mermaid:
        pipeline = read_description(path)
        if pipeline is None:
            raise PublishError(f"no pipeline in {path}: only a version that `bakery compose` made can be drawn")
        click.echo(draw_mermaid(pipeline))
        return
    click.echo(f"{path}: {format_size(size)}, of which weights {format_size(weights)}")
    if oldest_tensorflow is not None:
        click.echo(f"oldest TensorFlow tested with these options: {oldest_tensorflow}")
    for signature in signatures:
        click.echo(f"\n{signature.name} ({signature.method})")
        for arrow, tensors in (("→", signature.inputs), ("←", signature.outputs)):
            for tensor in tensors:
                click.echo(f"  {arrow} {tensor}")
    title = "recipe" if recipe_text else "no recipe: this SavedModel was not baked here"
    click.echo(f"\n{'pipeline' if (path / PIPELINE_FILE).is_file() else title}")
    click.echo("".join(f"  {line}".rstrip() + "\n" for line in (recipe_text or "").splitlines()), nl=False)


def _read_recipe(version: Path) -> str | None:
    """Return the TOML text that a version was baked with; None if it was not baked here."""
    for file in (RECIPE_FILE, FUNCTION_FILE, PIPELINE_FILE):
        if (version / file).is_file():
            return (version / file).read_text(encoding="utf-8")
    return None


@click.command(epilog="\b\nExample:\n  bakery versions saved_model/efficientnet_lite0\n")
@click.argument("path", type=click.Path(path_type=Path))
@options.json
def versions(path: Path, as_json: bool) -> None:
    """List the versions under PATH (OUT/NAME), lowest first."""
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
        click.echo(f"{row['version']}\t{format_size(row['size_bytes'])}\t{row['published']}\t{row['path']}")
