"""Source: which model is baked, and how its outputs become class labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from savedmodel_bakery.exporter.recipe.fields import Choice, Field, FieldGroup, Number, PathOrName, WholeNumber


@dataclass(frozen=True, kw_only=True)
class Source(FieldGroup):
    """Which model is baked, and how its outputs become class labels."""

    model: Annotated[
        str,
        PathOrName(
            names=r"efficientnet-lite.*|keras:.*|https?://.*|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*",
            path_prefix="hub:",
            metavar="MODEL",
            when_unset="required",
            help="efficientnet-lite0, -lite1 or -lite2; keras:NAME; a TF Hub or Kaggle URL, or hub:FOLDER; a .keras or "
            ".h5 file; a SavedModel's folder; package.module:callable.",
        ),
    ]
    labels: Annotated[
        str,
        PathOrName(
            names="imagenet|imagenet1001",
            metavar="SET|FILE",
            help="A label set that comes with the exporter (imagenet, imagenet1001) or a file.",
        ),
    ]
    outputs: Annotated[
        str,
        Choice(
            choices=("probabilities", "logits"),
            help="Values that the network returns; a softmax is added to logits, or for task binary a sigmoid.",
        ),
    ]
    top_k: Annotated[
        int,
        WholeNumber(
            minimum=1, metavar="K", help="Number of labels in a response, or all classes if there are fewer than that."
        ),
    ] = 5
    task: Annotated[
        str | None,
        Choice(
            choices=("classify", "binary"),
            when_unset="binary if the network has one output, else classify",
            help="What the outputs mean: classify has one output per label; binary has one, for the second of two "
            "labels.",
        ),
    ] = None
    threshold: Annotated[
        float | None,
        Number(
            minimum=0,
            maximum=1,
            metavar="PROBABILITY",
            when_unset="0.5",
            help="With task binary, the probability from which on serving_default answers the second label.",
        ),
    ] = None
    weights: Annotated[
        str | None,
        PathOrName(
            names="none|imagenet",
            metavar="none|imagenet|FILE",
            when_unset="imagenet",
            help="Weights of a keras:NAME model.",
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
