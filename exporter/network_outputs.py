"""Assigns the outputs of a network to the roles that tasks know.

Task tensors has no roles: its outputs keep their names, dtypes and shapes. With heads, the role of an output is its
head's name, a slash and the role there.

vector    [images, units]: one number per class, or an embedding
picture   [images, height, width, 1 or 3], of task image
points    [images, points, 2 or 3]: coordinates, and a score; or heat maps [images, height, width, points]
map       [images, height, width, classes] or [images, height, width]
boxes     [images, boxes, 4]
scores    [images, boxes, classes], or [images, boxes] beside `classes`
classes   [images, boxes], the class id of each box
count     [images], the number of boxes that are valid
masks     [images, boxes, height, width], or [images, boxes, coefficients] beside `prototypes`
prototypes [images, height, width, coefficients]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from savedmodel_bakery.answers.other_inputs import SECOND_IMAGE
from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.box_outputs import assign_boxes
from savedmodel_bakery.exporter.network_inputs import OtherInputs, listed
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.recipe.model import parse_names, parse_point_names
from savedmodel_bakery.exporter.tensor_types import (
    ConcreteFunction,
    NetworkOutput,
    NetworkOutputs,
    NormalisedBatch,
    Tensor,
)

# A function in the traceback that AutoGraph puts before the message of an error.
_TRACEBACK = re.compile(r'\s*File "[^"\n]*", line \d+, in [^\n]*\n[^\n]*\n')
_BOLD = re.compile(r"\x1b\[\d*m")  # Keras's

ONLY_OUTPUT = "output"
"""The name of the only output of a network in the answers of task tensors."""

_SELECT_ONE = "select one with --source-output of a SavedModel or --layer of a Keras model"

_ROLES = {"segment": "map", "image": "picture", "keypoints": "points"}  # of the only output, by task

# Without the number of images; None is any size.
_BOX_SHAPES = {"boxes": (None, 4), "classes": (None,), "count": ()}


def assign_roles(outputs: NetworkOutput, recipe: Recipe) -> NetworkOutputs:
    """Return the outputs that the task of a recipe uses, by role; without a task, the only output."""
    if recipe.answers.task == "detect":
        return assign_boxes(outputs, recipe)
    if recipe.by_head:
        return {
            f"{name}/{role}": output
            for name, head in recipe.by_head.items()
            for role, output in assign_roles(_outputs_of_head(outputs, name, head), head).items()
        }
    if isinstance(outputs, Mapping) and not outputs:
        raise SourceError(f"the network of {recipe.source.model} returns no outputs: must return at least one")
    if recipe.answers.task == "tensors":
        return dict(outputs) if isinstance(outputs, Mapping) else {ONLY_OUTPUT: outputs}
    if isinstance(outputs, Mapping):
        if len(outputs) > 1 and recipe.answers.task == "regress":
            return {"vector": _numbers(outputs, recipe)}
        if len(outputs) > 1:
            advice = (
                "; or use --task detect with --source-outputs boxes=NAME,scores=NAME, --task regress with "
                "--output-names for a number per output, --task tensors for all outputs as they are, or --heads FILE "
                f"with a task for each:\n{_heads_to_copy(outputs)}"
            )
            raise SourceError(
                f"the network has several outputs, {listed(outputs)}: {_SELECT_ONE}"
                f"{'' if recipe.answers.task else advice}"
            )
        (outputs,) = outputs.values()
    return {_ROLES.get(recipe.answers.task or "", "vector"): outputs}


def _heads_to_copy(outputs: Mapping[str, NetworkOutput]) -> str:
    """Return the file for --heads that such outputs probably need."""
    tables = []
    for name, output in outputs.items():
        sizes = list(getattr(output, "shape", ())[1:])
        if sizes in ([], [1]):
            task = 'task = "regress"'
        elif len(sizes) == 1:
            task = 'task = "classify"\nlabels = "FILE"\noutputs = "probabilities"'
        else:
            task = 'task = "tensors"'
        tables.append(f'[[heads]]\nname = "{name}"\n{task}\n')
    return "\n".join(tables)


def role_of(role: str, recipe: Recipe) -> tuple[str, Recipe]:
    """Return the role of an output within its head, and the recipe of the head; the same without heads."""
    if not recipe.by_head:
        return role, recipe
    head, _, own = role.partition("/")
    return own, recipe.by_head[head]


def _outputs_of_head(outputs: NetworkOutput, name: str, head: Recipe) -> NetworkOutput:
    if head.answers.task == "detect" or not isinstance(outputs, Mapping):
        return outputs
    selected = head.source.source_output
    if selected not in outputs:
        raise SourceError(
            f"head {name!r}: the network has no output {selected!r}; it has {listed(outputs)}: state one as `output`"
        )
    return outputs[selected]


def _numbers(outputs: Mapping[str, NetworkOutput], recipe: Recipe) -> NetworkOutput:
    """Return the outputs of a network that returns one number in each, [images, outputs]; the recipe names them."""
    stated = recipe.answers.output_names
    names = parse_names(stated) if stated else ()
    if set(names) != outputs.keys():
        raise SourceError(
            f"the network has several outputs, {listed(outputs)}: pass all their names, in the order of the answer, "
            f"with --output-names {','.join(outputs)} if each is one number; or {_SELECT_ONE}"
        )
    for name, output in outputs.items():
        if output.shape[1:] not in ([], [1], (), (1,)):
            raise SourceError(
                f'the output "{name}" of the network has shape {tuple(output.shape)}: with several outputs, task '
                f"regress needs one number in each. Concatenate them to one output in the network, or {_SELECT_ONE}"
            )
    return tf.stack([tf.reshape(tf.cast(outputs[name], tf.float32), [-1]) for name in names], axis=1)


def trace(
    network: Callable[..., NetworkOutput], recipe: Recipe, others: OtherInputs = MappingProxyType({})
) -> ConcreteFunction:
    """Trace a network as a function that returns its outputs by role, float32, of known ranks.

    It takes the normalised image and the other inputs in their order, of which a second image is normalised too.
    """
    model, channels = recipe.source.model, recipe.preprocessing.channel_count
    spec = tf.TensorSpec([None, *recipe.preprocessing.size, channels], tf.float32, name="normalised")
    second = recipe.second_preprocessing
    specs = [
        tf.TensorSpec([None, *second.size, second.channel_count], tf.float32)
        if name == SECOND_IMAGE
        else tf.TensorSpec([None, *other.shape], other.dtype)
        for name, other in others.items()
    ]

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def by_role(outputs: NetworkOutput) -> NetworkOutputs:
        roles = assign_roles(outputs, recipe)
        return {role: _shaped(*role_of(role, recipe), _checked(output, model)) for role, output in roles.items()}

    def call_network(normalised: NormalisedBatch, *values: Tensor) -> NetworkOutputs:
        outputs: NetworkOutputs = by_role(network(normalised, **dict(zip(others, values, strict=True))))
        return outputs

    try:
        return tf.function(call_network).get_concrete_function(spec, *specs)
    except Exception as error:  # the network's own code runs here
        if isinstance(error.__context__, SourceError):  # AutoGraph raises its own error instead
            raise error.__context__ from None
        reason = _BOLD.sub("", _TRACEBACK.split(str(error))[-1])
        cause = (
            ", which have one channel because of channels GRAY; pass RGB or BGR for colours" if channels == 1 else ""
        )
        raise SourceError(f"the network of {model} does not accept images {spec.shape}{cause}: {reason}") from error


def shapes(network: ConcreteFunction) -> dict[str, tuple[int | None, ...]]:
    """Return the shapes of the outputs of a traced network by role, with the batch axis; None is any size."""
    return {role: tuple(output.shape) for role, output in network.structured_outputs.items()}


def dtypes(network: ConcreteFunction) -> dict[str, np.dtype[Any]]:
    """Return the dtypes of the outputs of a traced network by role."""
    return {role: output.dtype.as_numpy_dtype for role, output in network.structured_outputs.items()}


def ends_in_sigmoid(network: ConcreteFunction) -> bool:
    """Return whether a sigmoid is the last operation of a traced network."""
    operation = network.outputs[0].op
    while operation.type in ("Identity", "Reshape", "Squeeze", "Cast"):
        operation = operation.inputs[0].op
    return bool(operation.type == "Sigmoid")


def _checked(output: NetworkOutput, model: str) -> NetworkOutput:
    if not tf.is_tensor(output):
        raise SourceError(
            f"the network of {model} returns a {type(output).__name__}: must return a tensor, or a dict of them by name"
        )
    dtype = output.dtype
    if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        raise SourceError(f"the network of {model} returns {dtype.name}: must return float, integer or bool")
    return output


def _shaped(role: str, recipe: Recipe, output: NetworkOutput) -> NetworkOutput:
    """Return an output in the shape and the dtype that its role has."""
    shape = output.shape
    if recipe.answers.task == "tensors":
        if not shape.rank or shape[0] is not None:
            raise SourceError(
                f"the output {role!r} of the network of {recipe.source.model} has the shape {shape}: task tensors "
                "needs a row per image, [images, …]"
            )
        return output
    output = tf.cast(output, tf.float32)
    match role:
        case "vector":
            if shape.rank == 1:  # one output per image
                return output[:, tf.newaxis]
            if shape.rank == 4 and recipe.answers.task == "embed":
                return tf.reduce_mean(output, [1, 2])
            if shape.rank == 4 and shape[1:3] == [1, 1]:
                return tf.squeeze(output, [1, 2])
            is_allowed, allowed = shape.rank == 2 and shape[1] is not None, "one row of scores per image"
        case "map":
            is_allowed, allowed = None not in shape[1:] and shape.rank in (3, 4), "[images, height, width, classes]"
        case "picture":
            is_allowed = shape.rank == 4 and None not in shape[1:] and shape[3] in (1, 3)
            allowed = "[images, height, width, 1 or 3]"
        case "points":
            output = _points(output, recipe.keypoints.point_names)
            shape = output.shape
            has_coordinates = shape.rank == 3 and shape[2] in (2, 3)
            is_allowed = None not in shape[1:] and (has_coordinates or shape.rank == 4)
            allowed = (
                "[images, points, 2 or 3], heat maps [images, height, width, points], or with --point-names all "
                "coordinates in one row"
            )
        case "scores":
            is_allowed, allowed = shape.rank in (2, 3), "[images, boxes, classes]"
        case "masks":
            is_allowed = shape.rank == 4 or (shape.rank == 3 and shape[2] is not None)
            allowed = "[images, boxes, height, width], or beside prototypes [images, boxes, coefficients]"
        case "prototypes":
            is_allowed, allowed = shape.rank == 4 and shape[3] is not None, "[images, height, width, coefficients]"
        case _:
            like = tf.TensorShape([None, *_BOX_SHAPES[role]])
            is_allowed, allowed = shape.is_compatible_with(like), str(like)
            output = tf.ensure_shape(output, like) if is_allowed else output
    if not is_allowed:
        output_name = "" if role == "vector" else f" for the {role}"
        per_pixel = "for a label per pixel pass --task segment, " if role == "vector" and shape.rank == 4 else ""
        advice = f"; {per_pixel}for the outputs as they are pass --task tensors"
        raise SourceError(
            f"the network of {recipe.source.model} returns shape {shape}{output_name}: it must return {allowed}{advice}"
        )
    return output


def _points(output: NetworkOutput, names: str | None) -> NetworkOutput:
    """Return coordinates that are [images, 1, points, 3], or in one row, as [images, points, …]."""
    shape = output.shape
    if shape.rank == 4 and shape[1] == 1 and shape[3] in (2, 3):
        return tf.squeeze(output, 1)
    count = len(parse_point_names(names)) if names else 0
    if shape.rank == 2 and count and shape[1] in (2 * count, 3 * count):
        return tf.reshape(output, [-1, count, shape[1] // count])
    return output
