"""Chooses the task of a recipe, or infers it from the network and the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from savedmodel_bakery.errors import BakeError, LabelError, RecipeError, SourceError
from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.recipe import Answers, Recipe
from savedmodel_bakery.exporter.recipe.model import (
    OBJECT_DETECTION_API,
    parse_bits,
    parse_fraction,
    parse_names,
    parse_point_names,
    parse_range,
    parse_skeleton,
    parse_thresholds,
    parse_units,
)
from savedmodel_bakery.exporter.tasks.classify import Binary, Classify, Multilabel
from savedmodel_bakery.exporter.tasks.detect import Detect
from savedmodel_bakery.exporter.tasks.heads import Heads, of_head
from savedmodel_bakery.exporter.tasks.keypoints import Keypoints
from savedmodel_bakery.exporter.tasks.mask_settings import choose_masks
from savedmodel_bakery.exporter.tasks.picture import Picture
from savedmodel_bakery.exporter.tasks.segment import Segment
from savedmodel_bakery.exporter.tasks.task import Task
from savedmodel_bakery.exporter.tasks.unlabelled import Embed, Regress, Tensors

Shape: TypeAlias = tuple[int | None, ...]
ClassNames: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
"""The labels by class id; with heads, those of each by its name."""

_DEFAULT_THRESHOLD = "0.5"
_DEFAULT_MAX_BOXES = 100
_DEFAULT_OUTPUT_NAME = "value"
_MAX_MAP_CLASSES = 256


def read_class_names(recipe: Recipe) -> ClassNames:
    """Read the labels of a recipe. Raises LabelError."""
    if recipe.by_head:
        return {name: resources.read_class_names(head.answers.labels) for name, head in recipe.by_head.items()}
    return resources.read_class_names(recipe.answers.labels)


def choose_task(
    recipe: Recipe,
    shapes: Mapping[str, Shape],
    class_names: ClassNames,
    *,
    dtypes: Mapping[str, np.dtype[Any]] = MappingProxyType({}),
    ends_in_sigmoid: bool = False,
) -> Task:
    """Return the task that the recipe states, or that follows from the network and the labels.

    The `shapes` are those of the network's outputs by role, with the batch axis; None is any size. The `dtypes` matter
    to task tensors. An id without a name has an empty one in `class_names`, which are empty without labels.
    """
    if isinstance(class_names, Mapping):
        return _heads(recipe, shapes, class_names, dtypes)
    answers = recipe.answers
    if answers.task == "tensors":
        return _tensors(recipe, shapes, dtypes)
    if "picture" in shapes:
        return _picture(recipe, shapes["picture"])
    if "points" in shapes:
        return _keypoints(recipe, shapes["points"])
    if "map" in shapes:
        return _segment(recipe, shapes["map"], class_names)
    if "boxes" in shapes:
        return _detect(recipe, shapes, class_names)
    units = shapes["vector"][-1]
    if units is None:
        raise SourceError(f"the network of {recipe.source.model} returns any number of scores: it must be fixed")
    name = answers.task or _infer(units, class_names, ends_in_sigmoid=ends_in_sigmoid)
    recipe.check_task(name)
    if name == "embed":
        return Embed(units, answers.normalise or "none", ends_in_sigmoid)
    if name == "regress":
        if answers.units is not None and len(parse_units(answers.units)) != units:
            raise RecipeError(f"invalid units {answers.units!r}: must be {units}, one per output")
        return Regress(_output_names(answers, units))
    if answers.labels is None or answers.outputs is None:
        raise RecipeError(f"task {name} needs --labels and --outputs; tasks embed and regress need none")
    if name == "binary":
        if units != 1:
            raise SourceError(f"task binary needs a network with one output; this one has {units}: use --task classify")
        check_labels(class_names, answers.labels_title, 2, decider="one output")
        (threshold,) = _thresholds(answers, 1)
        return Binary(tuple(class_names), answers.outputs, answers.top_k, threshold)
    if units == 1:
        raise SourceError(f"task {name} needs a network with one output per label; this one has 1: use --task binary")
    check_labels(class_names, answers.labels_title, units)
    if name == "multilabel":
        twice = next((label for number, label in enumerate(class_names) if label in class_names[:number]), None)
        if twice is not None:
            raise LabelError(f"{answers.labels_title} have {twice!r} twice: task multilabel needs different names")
        return Multilabel(tuple(class_names), answers.outputs, answers.top_k, _thresholds(answers, units))
    return Classify(tuple(class_names), answers.outputs, answers.top_k)


def _heads(
    recipe: Recipe,
    shapes: Mapping[str, Shape],
    class_names: Mapping[str, Sequence[str]],
    dtypes: Mapping[str, np.dtype[Any]],
) -> Heads:
    tasks = {}
    for name, head in recipe.by_head.items():
        try:
            tasks[name] = choose_task(head, of_head(shapes, name), class_names[name], dtypes=of_head(dtypes, name))
        except BakeError as error:
            raise type(error)(f"head {name!r}: {error}") from error
    return Heads(tasks)


def _tensors(recipe: Recipe, shapes: Mapping[str, Shape], dtypes: Mapping[str, np.dtype[Any]]) -> Tensors:
    outputs = {}
    for name, (_, *sizes) in shapes.items():
        shape = tuple(size for size in sizes if size is not None)
        if len(shape) < len(sizes):
            raise SourceError(
                f"the output {name!r} of the network of {recipe.source.model} has the shape {sizes} per image: "
                "task tensors needs a fixed one"
            )
        if name in ("ok", "error"):
            raise SourceError(f"the network has an output {name!r}, which every answer has: rename it")
        outputs[name] = shape, dtypes[name]
    return Tensors(outputs)


def _picture(recipe: Recipe, shape: Shape) -> Picture:
    answers = recipe.answers
    if answers.output_range is None:
        raise RecipeError("task image needs --output-range, the values of the network that are black and white")
    of_photo_size = answers.output_size == "photo"
    if of_photo_size and not recipe.preprocessing.keeps_whole_photo:
        raise RecipeError(
            f"invalid output_size 'photo': with crop {recipe.preprocessing.crop!r} there is a picture of a part of the "
            "photo only; must be network, or crop none or letterbox"
        )
    lowest, highest = parse_range(answers.output_range)
    channels = shape[-1]
    assert channels
    return Picture(
        channels, lowest, highest, parse_bits(answers.output_bits or "8"), of_photo_size, recipe.preprocessing
    )


def _keypoints(recipe: Recipe, shape: Shape) -> Keypoints:
    """Return the task of a network with coordinates, or with heat maps, which have four axes."""
    stated, has_maps = recipe.keypoints, len(shape) == 4
    coordinates = {"points": stated.points, "point_unit": stated.point_unit}
    for name, value in coordinates.items():
        if has_maps and value is not None:
            raise RecipeError(f"invalid {name} {value!r}: the network returns heat maps, not coordinates")
        if not has_maps and value is None:
            raise RecipeError(
                "task keypoints needs --points and --point-unit, the order and the unit of the network's coordinates"
            )
    count = shape[-1] if has_maps else shape[1]
    assert count
    names = parse_point_names(stated.point_names) if stated.point_names else tuple(map(str, range(count)))
    if len(names) != count:
        raise RecipeError(
            f"invalid point_names {stated.point_names!r}: {len(names)} names; must be {count}, one per point"
        )
    pairs = parse_skeleton(stated.skeleton) if stated.skeleton else ()
    for name in (name for pair in pairs for name in pair):
        if name not in names:
            raise RecipeError(
                f"invalid skeleton {stated.skeleton!r}: no point is called {name!r}, only {', '.join(names)}"
            )
    return Keypoints(
        names,
        tuple((names.index(first), names.index(second)) for first, second in pairs),
        stated.points or "maps",
        stated.point_unit or "pixels",
        has_maps or shape[2] == 3,
        recipe.preprocessing,
    )


def _segment(recipe: Recipe, shape: Shape, class_names: Sequence[str]) -> Segment:
    answers = recipe.answers
    assert answers.labels
    if len(class_names) > _MAX_MAP_CLASSES:
        raise LabelError(
            f"{answers.labels_title} have {len(class_names)} ids; a map of 8 bits has at most {_MAX_MAP_CLASSES}"
        )
    if answers.threshold is not None and shape[-1] != 1:
        raise RecipeError(
            f"invalid threshold {answers.threshold!r}: task segment has one for networks with one score per pixel only"
        )
    if len(shape) == 3:
        if answers.outputs is not None:
            raise RecipeError(f"invalid outputs {answers.outputs!r}: the network returns the class of each pixel")
        if answers.probabilities:
            raise RecipeError("invalid probabilities True: the network returns the class of each pixel, without scores")
        return Segment(tuple(class_names), "ids", recipe.preprocessing)
    if shape[-1] == 1:
        if answers.outputs is None:
            raise RecipeError("task segment needs --outputs for a network with one score per pixel")
        check_labels(class_names, answers.labels_title, 2, decider="one score per pixel")
    else:
        check_labels(class_names, answers.labels_title, shape[-1] or 0)
    if answers.probabilities and answers.outputs is None:
        raise RecipeError("task segment needs --outputs for --probabilities")
    (threshold,) = _thresholds(answers, 1)
    return Segment(
        tuple(class_names),
        answers.outputs or "logits",
        recipe.preprocessing,
        threshold,
        has_probabilities=bool(answers.probabilities),
    )


def _detect(recipe: Recipe, shapes: Mapping[str, Shape], class_names: Sequence[str]) -> Detect:
    answers, boxes = recipe.answers, recipe.boxes
    assert answers.labels
    assert boxes.boxes
    is_api = boxes.boxes == OBJECT_DETECTION_API
    if is_api and answers.outputs == "logits":
        raise RecipeError(f"invalid outputs 'logits': the scores of {OBJECT_DETECTION_API} are probabilities")
    if ("classes" in shapes) != (len(shapes["scores"]) == 2) or (is_api and "classes" not in shapes):
        raise SourceError(
            f"the network's scores have {len(shapes['scores'])} axes: must be [images, boxes, classes], or beside an "
            "output for the classes [images, boxes]; assign it with --source-outputs classes=NAME"
        )
    counts = {role: shapes[role][1] for role in ("boxes", "scores", "classes", "masks") if role in shapes}
    if len({count for count in counts.values() if count is not None}) > 1:
        stated = ", ".join(f"{count} {role}" for role, count in counts.items())
        raise SourceError(f"the network returns {stated} per image: must be the same number")
    if "classes" in shapes and boxes.background_class not in (None, "none"):
        raise RecipeError(
            f"invalid background_class {boxes.background_class!r}: the network returns the class of each box itself"
        )
    if "classes" not in shapes:
        has_background = boxes.background_class in ("first", "last")
        check_labels(class_names, answers.labels_title, (shapes["scores"][-1] or 0) - has_background)
    (threshold,) = _thresholds(answers, 1)
    return Detect(
        tuple(class_names),
        outputs=answers.outputs or "probabilities",
        threshold=threshold,
        boxes=boxes.boxes,
        box_unit=boxes.box_unit or "fractions",
        iou_threshold=parse_fraction(boxes.iou_threshold or _DEFAULT_THRESHOLD),
        max_boxes=boxes.max_boxes or _DEFAULT_MAX_BOXES,
        background_class=boxes.background_class or "none",
        preprocessing=recipe.preprocessing,
        masks=choose_masks(recipe, shapes),
    )


def _infer(units: int, class_names: Sequence[str], *, ends_in_sigmoid: bool) -> str:
    if units == 1:
        return "binary" if class_names else "regress"
    if not class_names:
        raise RecipeError(
            f"the network has {units} outputs: pass --labels and --outputs if each belongs to a label, otherwise "
            "--task embed or --task regress"
        )
    return "multilabel" if ends_in_sigmoid else "classify"


def check_labels(class_names: Sequence[str], title: str, count: int, *, decider: str = "") -> None:
    """Reject labels that aren't one for each of `count` classes. A `decider` is one output that decides between two.

    Messages call the labels `title`, in the plural.
    """
    if "" in class_names:
        named = len(class_names) - class_names.count("")
        raise LabelError(
            f"{title} have {named} names but none for class id {class_names.index('')}: ids must count "
            "from 0 without gaps"
        )
    if len(class_names) == count:
        return
    if decider:
        raise LabelError(
            f"the network has {decider}, which decides between two labels, but {title} have {len(class_names)}"
        )
    hint = ""
    if len(class_names) == count - 1:
        hint = "; a network with one more class than labels usually has a background class at id 0"
    raise LabelError(f"the network has {count} classes, but {title} have {len(class_names)}{hint}")


def _thresholds(answers: Answers, count: int) -> tuple[float, ...]:
    thresholds = parse_thresholds(answers.threshold or _DEFAULT_THRESHOLD)
    if len(thresholds) not in (1, count):
        allowed = "one" if count == 1 else f"one, or {count}"
        raise RecipeError(f"invalid threshold {answers.threshold!r}: {len(thresholds)} numbers; must be {allowed}")
    return thresholds if len(thresholds) == count else thresholds * count


def _output_names(answers: Answers, units: int) -> tuple[str, ...]:
    if answers.output_names is None:
        if units == 1:
            return (_DEFAULT_OUTPUT_NAME,)
        raise RecipeError(f"the network has {units} outputs: pass as many names with --output-names")
    names = parse_names(answers.output_names)
    if len(names) != units:
        raise RecipeError(f"invalid output_names {answers.output_names!r}: {len(names)} names; must be {units}")
    return names
