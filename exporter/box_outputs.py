"""Assigns the outputs of a detector to the roles that task detect knows; `network_outputs` lists them."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.network_inputs import listed
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.recipe.model import parse_outputs
from savedmodel_bakery.exporter.sources.network import usual_roles
from savedmodel_bakery.exporter.tensor_types import NetworkOutput, NetworkOutputs


def assign_boxes(outputs: NetworkOutput, recipe: Recipe) -> NetworkOutputs:
    """Return the outputs that the recipe names, or those with usual names, by role."""
    if not isinstance(outputs, Mapping):
        raise SourceError(
            f"task detect needs a network with an output for boxes and one for scores; that of {recipe.source.model} "
            "has a single one"
        )
    stated = recipe.source.source_outputs
    names = parse_outputs(stated) if stated else usual_roles(outputs)
    for role, name in names.items():
        if name not in outputs:
            raise SourceError(
                f"invalid source_outputs {stated!r}: the network has no output {name!r} for the {role}; it has "
                f"{listed(outputs)}"
            )
    if not {"boxes", "scores"} <= names.keys():
        raise SourceError(
            f"cannot infer which outputs are the boxes and the scores: the network has {listed(outputs)}; pass "
            "--source-outputs boxes=NAME,scores=NAME"
        )
    return _arranged(_separate({role: outputs[name] for role, name in names.items()}, names))


def _separate(outputs: Mapping[str, NetworkOutput], names: Mapping[str, str]) -> NetworkOutputs:
    """Return the outputs by role, of which one may have several in its columns, as YOLO has them.

    The columns are those of its shorter axis: four of the box, one per class and one per prototype.
    """
    shared = [role for role in ("boxes", "scores", "masks") if names.get(role) == names["boxes"]]
    shape = getattr(outputs["boxes"], "shape", None)
    if len(shared) == 1 or shape is None:
        return dict(outputs)
    if len(shape) != 3 or None in shape[1:]:
        raise SourceError(f"the output for {', '.join(shared)} has the shape {shape}: must be [images, boxes, columns]")
    rows = tf.transpose(outputs["boxes"], [0, 2, 1]) if shape[1] < shape[2] else outputs["boxes"]
    coefficients = outputs["prototypes"].shape[-1] if "masks" in shared and "prototypes" in outputs else 0
    if "masks" in shared and not coefficients:
        raise SourceError("the output for the boxes and the masks needs another one: --source-outputs prototypes=NAME")
    end = rows.shape[2] - coefficients
    parts = {"boxes": rows[..., :4], "scores": rows[..., 4:end], "masks": rows[..., end:]}
    return {**outputs, **{role: parts[role] for role in shared}}


def _arranged(outputs: NetworkOutputs) -> NetworkOutputs:
    """Return outputs whose masks and prototypes have their axes in the order of the roles.

    Of a network that takes channels first, a source has moved the first axis of all outputs of four to the end.
    """
    masks, prototypes = outputs.get("masks"), outputs.get("prototypes")
    if masks is None or not hasattr(masks, "shape"):  # the latter if only the names are checked
        return outputs
    count = outputs["boxes"].shape[1]
    if len(masks.shape) == 4 and count is not None and masks.shape[1] != count == masks.shape[3]:
        return {**outputs, "masks": tf.transpose(masks, [0, 3, 1, 2])}
    if prototypes is None or len(prototypes.shape) != 4:
        return outputs
    if prototypes.shape[3] != masks.shape[-1] == prototypes.shape[1]:
        return {**outputs, "prototypes": tf.transpose(prototypes, [0, 2, 3, 1])}
    return outputs
