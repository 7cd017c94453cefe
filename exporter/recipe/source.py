"""Source: which model is baked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from savedmodel_bakery.exporter.recipe.fields import Field, FieldGroup, Parsed, PathOrName

_ROLES = ("boxes", "scores", "classes", "count")


def parse_outputs(text: str) -> dict[str, str]:
    """Parse names of outputs by role, such as `boxes=NAME,scores=NAME`.

    Raises:
        ValueError: with the allowed values.
    """
    pairs = [pair.partition("=") for pair in text.split(",")]
    names = {role.strip(): name.strip() for role, _, name in pairs}
    if not all(names.values()) or not names.keys() <= set(_ROLES) or len(names) < len(pairs):
        raise ValueError(f"must be ROLE=NAME with commas, where ROLE is {', '.join(_ROLES)}")
    return names


@dataclass(frozen=True, kw_only=True)
class Source(FieldGroup):
    """Which model is baked."""

    model: Annotated[
        str,
        PathOrName(
            names=r"efficientnet-lite.*|keras:.*|https?://.*|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*",
            path_prefixes=("hub:", "keras-hub:"),
            metavar="MODEL",
            when_unset="required",
            help="efficientnet-lite0, -lite1 or -lite2; keras:NAME; a TF Hub or Kaggle URL, or hub:FOLDER; "
            "keras-hub:FOLDER; a .keras or .h5 file; a SavedModel's folder; package.module:callable.",
        ),
    ]
    weights: Annotated[
        str | None,
        PathOrName(
            names="none|imagenet",
            metavar="none|imagenet|FILE",
            when_unset="imagenet",
            help="Weights of a keras:NAME model; for task embed, those without its classifier (notop).",
        ),
    ] = None
    source_signature: Annotated[
        str | None,
        Field(metavar="NAME", when_unset="serving_default", help="Signature of a SavedModel or a TF Hub module."),
    ] = None
    source_input: Annotated[
        str | None, Field(metavar="NAME", when_unset="its only one", help="Input of that signature.")
    ] = None
    source_output: Annotated[
        str | None, Field(metavar="NAME", when_unset="its only one", help="Output of that signature.")
    ] = None
    source_outputs: Annotated[
        str | None,
        Parsed(
            parse=parse_outputs,
            metavar="ROLE=NAME,…",
            when_unset="those with the usual names",
            help="With task detect, the network's outputs: boxes and scores, and where it has them, classes and count.",
        ),
    ] = None
    layer: Annotated[
        str | None,
        Field(
            metavar="NAME",
            when_unset="the last one; for task embed, without the classifier of keras:NAME and efficientnet-lite",
            help="Layer of a Keras model whose output is used, such as the one before its classifier for task embed.",
        ),
    ] = None
