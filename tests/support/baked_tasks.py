"""Bakes a tiny model of every task, and draws a photo whose answers are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import shape_models

from savedmodel_bakery.exporter.bake import bake

SHAPES = {"red": (0.0, 0.0, 1.0, 0.75), "green": (0.0, 0.75, 0.5, 1.0)}
"""Three quarters of the photo are red, one eighth is green, and one is dark."""

HEIGHT, WIDTH = 40, 80
MARKUP = "<img src=x onerror=document.title='bad'>"
"""A label."""

_LABELS = {
    "colours.txt": ("red", "green", MARKUP),
    "two.txt": ("red", "green"),
    "four.txt": ("background", "red", "green", "blue"),
}
RECIPE = {"crop": "none", "resize": "bilinear", "antialias": False, "scale": "0..1", "channels": "RGB"}
_COLOURS = {"labels": "colours.txt", "outputs": "probabilities"}
_BOXES = {"size": 96, "boxes": "yxyx", "box_unit": "fractions"}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "classify": ("classifier", _COLOURS),
    "binary": ("decider", {"labels": "two.txt", "outputs": "probabilities"}),
    "multilabel": ("tagger", _COLOURS),
    "embed": ("tagger", {"task": "embed", "layer": "mean"}),
    "regress": ("meter", {"task": "regress", "output_names": "red,green"}),
    "image": ("negative", {"task": "image", "output_range": "0..1", "output_size": "photo"}),
    "tensors": ("tagger", {"task": "tensors"}),
    "detect": (
        "masker",
        _COLOURS | _BOXES | {"source_outputs": "boxes=boxes,scores=scores,masks=masks", "mask_area": "box"},
    ),
    "keypoints": (
        "pointer",
        {
            "task": "keypoints",
            "size": 96,
            "points": "yx",
            "point_unit": "fractions",
            "point_names": f"red,green,{MARKUP}",
            "skeleton": "red-green",
        },
    ),
    "heads": (
        "two_heads",
        {
            "heads": [
                {"name": "redness", "task": "regress"},
                {"name": "colour", "task": "classify", "labels": "colours.txt", "outputs": "logits"},
            ]
        },
    ),
    "segment": (
        "segmenter",
        {"task": "segment", "size": 96, "labels": "four.txt", "outputs": "logits", "probabilities": True},
    ),
}


def draw_photo(path: Path) -> Path:
    """Write the photo, a PNG file."""
    shape_models.draw((HEIGHT, WIDTH), SHAPES).save(path)
    return path


def _with_paths(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the values of a recipe with the paths of the label files in a folder."""
    values = values | ({"labels": str(folder / values["labels"])} if "labels" in values else {})
    return values | ({"heads": [_with_paths(head, folder) for head in values["heads"]]} if "heads" in values else {})


def bake_tasks(folder: Path) -> None:
    """Bake a model per task, named as the task, and a second version of `classify` that returns two classes.

    `models.config`, for `--model_config_file`, serves all versions.
    """
    photo = draw_photo(folder / "photo.png")
    for name, names in _LABELS.items():
        (folder / name).write_text("\n".join(names) + "\n")
    configs = []
    for task, (model, values) in [*TASKS.items(), ("classify", ("classifier", _COLOURS | {"top_k": 2}))]:
        recipe = _with_paths({**RECIPE, **values}, folder)
        result = bake(model=f"shape_models:{model}", name=task, out=folder, recipe=recipe, photos=[photo])
        assert task == result.recipe.answers.task
        assert result.parity.is_within
    for task in TASKS:
        base_path = f'name: "{task}" base_path: "{folder / task}" model_platform: "tensorflow"'
        configs.append(f"config {{ {base_path} model_version_policy {{ all {{}} }} }}")
    (folder / "models.config").write_text(f"model_config_list {{ {' '.join(configs)} }}")
