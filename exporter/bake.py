"""Bake: source and recipe in, one published and verified version out.

source ─► network ┐
recipe, labels ───┴─► servable ─► staged SavedModel ─► proof ─► <root>/<name>/<version>
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from savedmodel_bakery.exporter import labels, publish, resources, sources
from savedmodel_bakery.exporter.errors import PublishError, RecipeError
from savedmodel_bakery.exporter.recipe import complete_recipe, read_toml
from savedmodel_bakery.exporter.servable_module import ServableModule
from savedmodel_bakery.exporter.validation import page
from savedmodel_bakery.exporter.validation.tolerance import DEFAULT_TOLERANCE, Tolerance
from savedmodel_bakery.exporter.validation.validate import Proof, prove


@dataclass(frozen=True)
class Baked:
    """What a bake made.

    Attributes:
        path: the version's folder.
        proof: how its answers compare with the network's and with the reference pipeline's.
    """

    path: Path
    proof: Proof


def bake(
    *,
    base_path: Path,
    version: int | None = None,
    same_model: bool = False,
    recipe_file: Path | None = None,
    options: Mapping[str, Any] | None = None,
    photos: Sequence[Path] | None = None,
    tolerance: Tolerance | None = DEFAULT_TOLERANCE,
    parity_page: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Baked:
    """Bake a model into a new version under `base_path`.

    Args:
        base_path: the folder that holds the numbered versions.
        version: its number; None is the next.
        same_model: refuse where the newest version there was baked from another model.
        recipe_file: TOML with some or all of the recipe; wins over what the source knows.
        options: fields of the recipe, the model among them; win over the file; None counts as not given.
        photos: what the SavedModel is proven on, and what its goldens ask; None is the photos of the exporter.
        tolerance: how far its answers may be from those of the reference pipeline; None publishes whatever they are.
        parity_page: where to write the comparison as an HTML page, also where it leads to a refusal.
        progress: told what is being done, in a few words.

    Raises:
        BakeError: it was refused, and nothing was published.
    """
    publish.check_free(base_path, version)
    if parity_page:
        page.check_writable(parity_page)
    from_file = read_toml(recipe_file) if recipe_file else {}
    given = from_file | {name: value for name, value in (options or {}).items() if value is not None}
    if "model" not in given:
        raise RecipeError("no model was given; name one with --model, or in the recipe file")
    sources.find_source(given["model"])  # a misspelt name is that, whatever else it would be
    if same_model:
        _check_same_model(base_path, given["model"])
    progress(f"loading {given['model']}")
    network = sources.read_network(given["model"], sources.SourceOptions.of_recipe(given))
    chosen = complete_recipe(network.recipe, given)
    names = labels.read_labels(chosen.source.labels)
    progress("building the servable")
    servable = ServableModule(network.call, chosen, names)
    with publish.staging(base_path) as stage:
        staged = stage / "version"
        servable.save(staged)
        (staged / publish.RECIPE_FILE).parent.mkdir()
        (staged / publish.RECIPE_FILE).write_text(chosen.to_toml())
        progress("verifying it in a fresh process")
        proof = prove(
            staged,
            network,
            chosen,
            names,
            name=base_path.name,
            photos=photos or resources.example_photos(),
            tolerance=tolerance or DEFAULT_TOLERANCE,
        )
        if parity_page:
            page.write(parity_page, proof.report, proof.shown)
        if tolerance:
            proof.report.check(advice="; --parity-html shows it, --no-parity bakes it nevertheless")
        return Baked(publish.publish(staged, base_path, version), proof)


def _check_same_model(base_path: Path, model: str) -> None:
    newest = max(publish.published_versions(base_path).items(), default=None)
    if newest is None or not (newest[1] / publish.RECIPE_FILE).is_file():
        return
    served = read_toml(newest[1] / publish.RECIPE_FILE).get("model")
    if served != model:
        raise PublishError(f"{base_path} serves {served}; give {model} a name of its own with --name")
