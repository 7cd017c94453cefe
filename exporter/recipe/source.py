"""Source: which model is baked."""

from __future__ import annotations

from dataclasses import dataclass

from savedmodel_bakery.exporter.recipe.fields import REQUIRED, FieldGroup, Parsed, PathOrName, Text, recipe_field

_ROLES = ("boxes", "scores", "classes", "count")


def parse_outputs(text: str) -> dict[str, str]:
    """Parse names of outputs by role, such as `boxes=NAME,scores=NAME`."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    names = {role.strip(): name.strip() for role, _, name in pairs}
    if not all(names.values()) or not names.keys() <= set(_ROLES) or len(names) < len(pairs):
        raise ValueError
    return names


@dataclass(frozen=True, kw_only=True)
class Source(FieldGroup):
    """Which model is baked."""

    model: str = recipe_field(
        PathOrName(
            r"efficientnet-lite.*|keras:.*|https?://.*|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*",
            path_prefixes=("hub:", "keras-hub:"),
        ),
        "efficientnet-lite0, -lite1 or -lite2; keras:NAME; a TF Hub or Kaggle URL, or hub:FOLDER; keras-hub:FOLDER; a "
        ".keras or .h5 file; a SavedModel's folder; package.module:callable.",
        default=REQUIRED,
        metavar="MODEL",
        when_unset="required",
    )
    weights: str | None = recipe_field(
        PathOrName("none|imagenet"),
        "Weights of a keras:NAME model; for task embed, those without its classifier (notop).",
        metavar="none|imagenet|FILE",
        when_unset="imagenet",
    )
    source_signature: str | None = recipe_field(
        Text(), "Signature of a SavedModel or a TF Hub module.", metavar="NAME", when_unset="serving_default"
    )
    source_input: str | None = recipe_field(
        Text(), "Input of that signature.", metavar="NAME", when_unset="its only one"
    )
    source_output: str | None = recipe_field(
        Text(), "Output of that signature.", metavar="NAME", when_unset="its only one"
    )
    source_outputs: str | None = recipe_field(
        Parsed(parse_outputs, f"ROLE=NAME with commas, where ROLE is {', '.join(_ROLES)}"),
        "With task detect, the network's outputs: boxes and scores, and where it has them, classes and count.",
        metavar="ROLE=NAME,…",
        when_unset="those with the usual names",
        tasks=("detect",),
    )
    layer: str | None = recipe_field(
        Text(),
        "Layer of a Keras model whose output is used, such as the one before its classifier for task embed.",
        metavar="NAME",
        when_unset="the last one; for task embed, without the classifier of keras:NAME and efficientnet-lite",
    )
