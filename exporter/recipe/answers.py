"""Answers: what the network's outputs mean, and what the servable answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from savedmodel_bakery.exporter.recipe.fields import Choice, FieldGroup, Number, PathOrName, WholeNumber


@dataclass(frozen=True, kw_only=True)
class Answers(FieldGroup):
    """What the network's outputs mean, and what the servable answers."""

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
