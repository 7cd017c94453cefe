"""Boxes: how a detector states its boxes, and which of them the servable answers."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe.fields import Choice, FieldGroup, Parsed, WholeNumber

OBJECT_DETECTION_API = "tf-object-detection"


def parse_fraction(text: str) -> float:
    """Parse a number from 0 to 1.

    Raises:
        ValueError: with the allowed values.
    """
    try:
        fraction = float(text)
    except ValueError:
        fraction = -1.0
    if not 0 <= fraction <= 1:
        raise ValueError("must be a number from 0 to 1")
    return fraction


@dataclass(frozen=True, kw_only=True)
class Boxes(FieldGroup):
    """How a detector states its boxes, and which of them the servable answers. For task detect only."""

    TASKS_WITH = MappingProxyType(
        dict.fromkeys(("boxes", "box_unit", "iou_threshold", "max_boxes", "background_class"), ("detect",))
    )

    boxes: Annotated[
        str | None,
        Choice(
            choices=("yxyx", "xyxy", "cxcywh", OBJECT_DETECTION_API),
            when_unset=f"{OBJECT_DETECTION_API} if an output is named detection_boxes, else required for task detect",
            help="How task detect's network states a box: by its edges, top left first, or by its centre and size; "
            f"{OBJECT_DETECTION_API} has the outputs of TensorFlow's Object Detection API, without duplicates.",
        ),
    ] = None
    box_unit: Annotated[
        str | None,
        Choice(
            choices=("fractions", "pixels"),
            when_unset=f"fractions with {OBJECT_DETECTION_API}, else required for task detect",
            help="Unit of the boxes: fractions of the network's input, or its pixels.",
        ),
    ] = None
    iou_threshold: Annotated[
        str | None,
        Parsed(
            parse=parse_fraction,
            metavar="IOU",
            when_unset="0.5",
            help="Drops the worse of two boxes with the same label that overlap by more (intersection over union).",
        ),
    ] = None
    max_boxes: Annotated[
        int | None,
        WholeNumber(minimum=1, maximum=1_000, metavar="N", when_unset="100", help="Number of boxes in an answer."),
    ] = None
    background_class: Annotated[
        str | None,
        Choice(
            choices=("none", "first", "last"),
            when_unset="none",
            help="Which of the network's classes means no object. Logits become probabilities by a softmax if there "
            "is one, else by a sigmoid.",
        ),
    ] = None

    def _check_combination(self) -> None:
        if self.boxes == OBJECT_DETECTION_API:
            for name in ("box_unit", "iou_threshold", "background_class"):
                value = getattr(self, name)
                if value is not None:
                    raise RecipeError(f"invalid {name} {value!r}: boxes {OBJECT_DETECTION_API} need none")
