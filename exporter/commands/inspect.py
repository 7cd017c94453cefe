"""The commands that examine published versions: `inspect` and `parity`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.exporter import publish
from savedmodel_bakery.exporter.commands import options
from savedmodel_bakery.exporter.commands.running import NO_EVIDENCE, print_progress, print_warning, tensorflow
from savedmodel_bakery.exporter.recipe import Recipe, convert_values, read_recipe_file
from savedmodel_bakery.files import parse_toml
from savedmodel_bakery.groups import Command
from savedmodel_bakery.storage import folders, versions
from savedmodel_bakery.storage.arguments import FolderOrUrl
from savedmodel_bakery.storage.store import Store
from savedmodel_bakery.wire import version_folder

_INSPECT_EXAMPLES = """\b
Examples:
  bakery inspect saved_model/efficientnet_lite0
  bakery inspect saved_model/efficientnet_lite0/1
  bakery inspect saved_model/add_sub_mul/1 --mermaid
"""
_PARITY_EXAMPLES = """\b
Examples:
  bakery parity saved_model/efficientnet_lite0/1
  bakery parity saved_model/flowers/1 --photos holiday --parity-html parity.html
  bakery parity saved_model/flowers/1 --model old/flowers.keras --labels old/flowers.txt
"""
_PARITY_BRIEF = {
    **dict.fromkeys(("photos", "parity_html", "model", "labels", "as_json")),
    "predictions": "What the network answered in training for some of the photos.",
}
_MOVED = "Use this instead of the recipe's {}, whose path is relative to the working directory of the bake."

# `make test-runtimes` bakes with the current TensorFlow, and checks these tables in an environment for each version.
# docs/reference/compatibility.md is made from them too.
TESTED_VERSIONS = ("2.14.1", "2.16.2", "2.18.1", "2.19.1", "2.20.0")
"""Versions of tensorflow-cpu for x86 in which bakes were tested, oldest first."""

_OLDEST = TESTED_VERSIONS[0]

OLDEST: Mapping[str, str] = {
    **{
        f"`--task {task}`": _OLDEST
        for task in [
            "classify",
            "binary",
            "multilabel",
            "embed",
            "regress",
            "detect",
            "segment",
            "keypoints",
            "image",
            "tensors",
            "heads",
        ]
    },
    **{f"`--precision {precision}`": _OLDEST for precision in ("float32", "bfloat16", "float16")},
    "`--precision int8`": "2.18.1",  # for matrix products; convolutions alone also give the same from 2.14.1 on
    "`--batch-max`": _OLDEST,
}
"""The version from which on all in `TESTED_VERSIONS` give the same answers, by an option of a bake."""

OLDEST_FOR_PHOTOS: Mapping[str, str] = {
    **dict.fromkeys(("JPEG", "PNG", "GIF", "BMP"), _OLDEST),
    "WebP": "2.20.0",
}
"""The same by the format of a photo."""


_SHOWN = {version_folder.GRAPH, publish.RECIPE_FILE, publish.FUNCTION_FILE, publish.PIPELINE_FILE, publish.PARITY_FILE}


@click.command(epilog=_INSPECT_EXAMPLES)
@click.argument("folder", type=FolderOrUrl(path_type=Path))
@click.option("--mermaid", "as_mermaid", is_flag=True, help="Print a pipeline as a Mermaid diagram, for Markdown.")
@options.json
def inspect(folder: Path | Store, as_mermaid: bool, as_json: bool) -> None:
    """Show what is in FOLDER, or at a URL such as s3://bucket/models/flowers: the versions of a model, or one version.

    Of a model: the number, size, time and path of each version, lowest first. Of a version: its signatures, its recipe,
    its size, the steps of a pipeline, and the oldest TensorFlow in which bakes of this task and precision were tested.
    """
    if as_mermaid and as_json:
        raise click.UsageError("--mermaid cannot be combined with --json")
    version = versions.find_version(folder)
    if version == folder or as_mermaid:
        _inspect_version(version, as_mermaid=as_mermaid, as_json=as_json)
    else:
        _list_versions(folder, as_json)


def _inspect_version(version: Path | Store, *, as_mermaid: bool, as_json: bool) -> None:
    sizes = versions.sizes(version)
    weights = sum(size for name, size in sizes.items() if name.startswith("variables/"))
    with versions.opened(version, _SHOWN) as folder:
        _print_version(folder, str(version), sum(sizes.values()), weights, as_mermaid=as_mermaid, as_json=as_json)


def _print_version(path: Path, source: str, size: int, weights: int, *, as_mermaid: bool, as_json: bool) -> None:
    """Print what `inspect` shows of the version that comes from `source` and whose files are in `path`."""
    from savedmodel_bakery.exporter.pipeline.pipeline_file import draw_mermaid, read_description
    from savedmodel_bakery.exporter.signatures import read_signatures

    signatures = read_signatures(path)
    recipe_text = _read_recipe_text(path)
    try:
        recipe = parse_toml(recipe_text) if recipe_text else None
    except ValueError as error:
        raise PublishError(f"the recipe in {source} is damaged: {error}") from error
    takes_images_only = all(len(signature.inputs) == 1 for signature in signatures)
    oldest_tensorflow = oldest_version(recipe) if recipe and takes_images_only else None
    if as_json:
        inspection = {
            "path": source,
            "size_bytes": size,
            "weights_bytes": weights,
            "signatures": [dataclasses.asdict(signature) for signature in signatures],
            "recipe": recipe,
            "evidence": _read_evidence(path),
            "oldest_tensorflow": oldest_tensorflow,
        }
        click.echo(json.dumps(inspection))
        return
    if as_mermaid:
        pipeline = read_description(path)
        if pipeline is None:
            raise PublishError(f"no pipeline in {source}: only a version that `bakery compose` made can be drawn")
        click.echo(draw_mermaid(pipeline))
        return
    click.echo(f"{source}: {publish.format_size(size)}, of which weights {publish.format_size(weights)}")
    if oldest_tensorflow is not None:
        click.echo(f"oldest TensorFlow tested with these options: {oldest_tensorflow}")
    for signature in signatures:
        click.echo(f"\n{signature.name} ({signature.method})")
        for arrow, tensors in (("→", signature.inputs), ("←", signature.outputs)):
            for tensor in tensors:
                click.echo(f"  {arrow} {tensor}")
    title = "recipe" if recipe_text else "no recipe: this SavedModel was not baked here"
    if (path / publish.RECIPE_FILE).is_file():
        lines = [f"the recipe {shown['summary']}" for shown in _read_evidence(path)] or [NO_EVIDENCE]
        click.echo("\n" + "\n".join(lines))
    click.echo(f"\n{'pipeline' if (path / publish.PIPELINE_FILE).is_file() else title}")
    click.echo("".join(f"  {line}".rstrip() + "\n" for line in (recipe_text or "").splitlines()), nl=False)


def _read_evidence(version: Path) -> list[dict[str, Any]]:
    """Return what training showed when a version was baked; see `evidence.judge.Judgement.to_json`."""
    try:
        evidence = json.loads((version / publish.PARITY_FILE).read_bytes())["evidence"]
    except (OSError, ValueError, KeyError):  # none, or baked by an earlier exporter
        return []
    return evidence if isinstance(evidence, list) else []


def oldest_version(recipe: Mapping[str, Any]) -> str | None:
    """Return the oldest version that was tested for the values of a recipe; None if one of them was not tested."""
    baked_with = [f"`--task {recipe.get('task')}`", f"`--precision {recipe.get('precision', 'float32')}`"]
    if recipe.get("batch_max", 0):
        baked_with.append("`--batch-max`")
    if not OLDEST.keys() >= set(baked_with):
        return None
    return max((OLDEST[option] for option in baked_with), key=TESTED_VERSIONS.index)


def _read_recipe_text(version: Path) -> str | None:
    """Return the TOML text that a version was baked with; None if it was not baked here."""
    for file in (publish.RECIPE_FILE, publish.FUNCTION_FILE, publish.PIPELINE_FILE):
        if (version / file).is_file():
            return (version / file).read_text(encoding="utf-8")
    return None


def _list_versions(path: Path | Store, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "version": number,
            "path": str(version),
            "size_bytes": sum(versions.sizes(version).values()),
            "published": versions.published_at(version).isoformat(timespec="seconds"),
        }
        for number, version in versions.published_versions(path).items()
    ]
    if not rows:
        raise PublishError(f"no versions under {path}: versions are folders named 1, 2, 3 …")
    if as_json:
        click.echo(json.dumps(rows))
        return
    for row in rows:
        click.echo(f"{row['version']}\t{publish.format_size(row['size_bytes'])}\t{row['published']}\t{row['path']}")


@click.command(cls=Command, epilog=_PARITY_EXAMPLES, brief=_PARITY_BRIEF)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@options.photos
@options.tolerance
@options.min_agreement
@options.parity_html
@options.evidence
@options.input_values
@click.option("--model", metavar="MODEL", help=_MOVED.format("model"))
@click.option("--labels", metavar="SET|FILE", help=_MOVED.format("labels"))
@click.option("--weights", metavar="FILE", help=_MOVED.format("weights"))
@click.option("--heads", metavar="FILE", help=_MOVED.format("heads"))
@click.option("--onnx2tf", metavar="PYTHON", help=_MOVED.format("onnx2tf"))
@options.json
@options.verbose
def parity(
    folder: Path,
    photos: list[Path] | None,
    min_agreement: float | None,
    parity_html: Path | None,
    inputs: str | None,
    predictions: str | None,
    labelled: Path | None,
    input_values: Path | None,
    search_seconds: float,
    model: str | None,
    labels: str | None,
    weights: str | None,
    heads: str | None,
    onnx2tf: str | None,
    as_json: bool,
    verbose: bool,
    **tolerance: float | None,
) -> None:
    """Compare a version with the reference pipeline of its source, photo by photo.

    FOLDER is that of a version, or of a model, whose newest version is compared. The reference decodes, crops and
    resizes with Pillow and NumPy, and calls the network directly. Exits with 1 if a photo is beyond tolerance.
    """
    saved_model = folders.find_version(folder)
    recipe_file = saved_model / publish.RECIPE_FILE
    if not recipe_file.is_file():
        raise PublishError(
            f"no {publish.RECIPE_FILE} in {saved_model}: pass the folder of a version that `bakery bake` made"
        )
    moved = convert_values({"model": model, "labels": labels, "weights": weights, "heads": heads, "onnx2tf": onnx2tf})
    recipe = Recipe.from_values({**read_recipe_file(recipe_file).values, **moved})
    with tensorflow("parity", verbose=verbose):
        from savedmodel_bakery.exporter.evidence import Sources, default_photos, judge_all
        from savedmodel_bakery.exporter.validation.report import check_writable, write_html_page
        from savedmodel_bakery.exporter.validation.validate import compare_with_source

        if parity_html:
            check_writable(parity_html)
        photos = photos or default_photos(labelled)
        report = compare_with_source(
            saved_model,
            recipe,
            photos,
            lambda task: task.tolerance.replaced(**tolerance),
            print_progress,
            min_agreement=min_agreement,
            input_values=input_values,
            judge=lambda network: [
                judgement.to_json()
                for judgement in judge_all(
                    Sources(inputs, predictions, labelled),
                    {name: value for name, value in recipe.to_values().items() if value is not None},
                    network,
                    photos,
                    search_seconds,
                    progress=print_progress,
                )[0]
            ],
        )
        if parity_html:
            write_html_page(parity_html, report)
    click.echo(json.dumps(report.to_json()) if as_json else report.to_table())
    for shown in report.evidence:
        click.echo(f"the recipe {shown['summary']}", err=as_json)
    print_warning(report.warning)
    report.check()
