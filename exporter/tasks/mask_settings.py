"""What the masks of a network cover, as a recipe states it or as it follows from the network's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from savedmodel_bakery.errors import RecipeError, SourceError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.recipe.model import OBJECT_DETECTION_API, parse_number

_PROBABILITY, _LOGIT = "0.5", "0"  # thresholds


@dataclass(frozen=True)
class MaskSettings:
    """What a network's masks cover, and which pixels of the photo they have; see the recipe."""

    area: str  # `box`, its box, or `input`, the network's input
    threshold: float  # the value above which a pixel is of the object
    is_corner_aligned: bool  # of `box`: whether the outer cells have their centres on the edges of the box


def choose_masks(recipe: Recipe, shapes: Mapping[str, tuple[int | None, ...]]) -> MaskSettings | None:
    """Return the settings of a detector's masks; None if it returns none. The `shapes` are those of its outputs."""
    stated = recipe.boxes
    if "masks" not in shapes:
        for name in ("mask_area", "mask_threshold"):
            if getattr(stated, name) is not None:
                raise RecipeError(
                    f"invalid {name} {getattr(stated, name)!r}: the network returns no masks; if one of its outputs is "
                    "masks, assign it with --source-outputs boxes=NAME,scores=NAME,masks=NAME"
                )
        if "prototypes" in shapes:
            raise RecipeError("prototypes need their coefficients: assign them with --source-outputs masks=NAME")
        return None
    masks, prototypes = shapes["masks"], shapes.get("prototypes")
    if (prototypes is None) != (len(masks) == 4):
        raise SourceError(
            f"the network's masks have {len(masks)} axes: must be [images, boxes, height, width], or beside prototypes "
            "[images, boxes, coefficients]; assign these with --source-outputs prototypes=NAME"
        )
    if prototypes is not None and prototypes[-1] != masks[-1]:
        raise SourceError(f"the network returns {masks[-1]} coefficients of each mask, but {prototypes[-1]} prototypes")
    is_api = stated.boxes == OBJECT_DETECTION_API
    area = stated.mask_area or ("input" if prototypes else "box" if is_api else None)
    if area is None:
        raise RecipeError("task detect needs --mask-area: whether a mask covers its box or the network's input")
    if prototypes and area == "box":
        raise RecipeError("invalid mask_area 'box': masks of prototypes cover the network's input; must be input")
    if area == "input" and None in (sizes := (prototypes or masks[1:])[1:3]):
        raise SourceError(f"the network's masks have the size {sizes}: with mask_area input, it must be fixed")
    threshold = parse_number(stated.mask_threshold or (_LOGIT if prototypes else _PROBABILITY))
    return MaskSettings(area, threshold, is_corner_aligned=is_api and area == "box")
