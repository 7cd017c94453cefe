"""Which outputs of a network a task uses, and what it rejects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from savedmodel_bakery.errors import BakeError, SourceError
from savedmodel_bakery.exporter.network_outputs import trace
from savedmodel_bakery.exporter.recipe import Recipe, complete_recipe
from savedmodel_bakery.exporter.tasks.choose import choose_task

RecipeOf = Callable[..., Recipe]
AB = ("a", "b")
BOXES: dict[str, Any] = {"task": "detect", "boxes": "yxyx", "box_unit": "pixels"}
API: dict[str, Any] = {"task": "detect", "boxes": "tf-object-detection", "outputs": None}
NUMBERS: dict[str, Any] = {"task": "regress", "labels": None, "outputs": None, "output_names": "height,mass"}


SCORED = {"boxes": (5, 4), "scores": (5, 2)}
MASKS = {"source_outputs": "boxes=boxes,scores=scores,masks=masks"}
YOLO = {"output0": (9, 20), "output1": (8, 8, 3)}
YOLO_ROLES = {"source_outputs": "boxes=output0,scores=output0,masks=output0,prototypes=output1"}


def network(shapes: Any) -> Callable[[tf.Tensor], Any]:
    """Return a network with outputs of these shapes, without the batch axis."""

    def zeros(images: tf.Tensor, shape: tuple[int, ...]) -> tf.Tensor:
        return tf.zeros([tf.shape(images)[0], *shape])

    def call(images: tf.Tensor) -> Any:
        if isinstance(shapes, dict):
            return {name: zeros(images, shape) for name, shape in shapes.items()}
        return zeros(images, shapes)

    return call


@pytest.mark.parametrize(
    ("shapes", "values", "roles"),
    [
        ((2,), {}, {"vector": (2,)}),
        ((), {}, {"vector": (1,)}),
        ((1, 1, 2), {}, {"vector": (2,)}),
        ((3, 4, 2), {"task": "embed", "labels": None, "outputs": None}, {"vector": (2,)}),
        ({"probabilities": (2,)}, {}, {"vector": (2,)}),
        ({"mass": (1,), "height": (), "age": (1,)}, NUMBERS | {"output_names": "height,age,mass"}, {"vector": (3,)}),
        ((3, 4, 2), {"task": "segment"}, {"map": (3, 4, 2)}),
        ((3, 4), {"task": "segment", "outputs": None}, {"map": (3, 4)}),
        ({"bboxes": (5, 4), "confidence": (5, 2), "x": (7,)}, BOXES, {"boxes": (5, 4), "scores": (5, 2)}),
        (
            {"a": (5, 4), "b": (5, 2)},
            BOXES | {"source_outputs": "boxes=a, scores=b"},
            {"boxes": (5, 4), "scores": (5, 2)},
        ),
        (
            {"detection_boxes": (5, 4), "detection_scores": (5,), "detection_classes": (5,), "num_detections": ()},
            API,
            {"boxes": (5, 4), "scores": (5,), "classes": (5,), "count": ()},
        ),
        (
            {
                "detection_boxes": (5, 4),
                "detection_scores": (5,),
                "detection_classes": (5,),
                "detection_masks": (5, 3, 3),
            },
            API,
            {"boxes": (5, 4), "scores": (5,), "classes": (5,), "masks": (5, 3, 3)},
        ),
        (YOLO, BOXES | YOLO_ROLES, {"boxes": (20, 4), "scores": (20, 2), "masks": (20, 3), "prototypes": (8, 8, 3)}),
        (
            {"a": (20, 6)},
            BOXES | {"source_outputs": "boxes=a,scores=a"},
            {"boxes": (20, 4), "scores": (20, 2)},
        ),
        (SCORED | {"masks": (7, 9, 5)}, BOXES | MASKS, SCORED | {"masks": (5, 7, 9)}),  # channels first
        (
            SCORED | {"masks": (5, 3), "p": (3, 8, 9)},
            BOXES | {"source_outputs": "boxes=boxes,scores=scores,masks=masks,prototypes=p"},
            SCORED | {"masks": (5, 3), "prototypes": (8, 9, 3)},
        ),
    ],
)
def test_outputs_are_assigned_by_task_and_name(
    recipe_of: RecipeOf, shapes: Any, values: dict[str, Any], roles: dict[str, tuple[int, ...]]
) -> None:
    outputs = trace(network(shapes), recipe_of(**values)).structured_outputs
    assert {role: (None, *shape) for role, shape in roles.items()} == {
        role: tuple(output.shape) for role, output in outputs.items()
    }


@pytest.mark.parametrize(
    ("shapes", "values", "message"),
    [
        (
            (3, 4, 2),
            {},
            "one row of scores per image; for a label per pixel pass --task segment, for the outputs as they",
        ),
        ((2,), {"task": "segment"}, "for the map: it must return [images, height, width, classes]"),
        (
            {"x": (2,), "y": (2,)},
            {},
            'several outputs, "x", "y": select one with --source-output of a SavedModel or --layer',
        ),
        (
            {"x": (2,), "y": (2,)},
            {},
            "; or use --task detect with --source-outputs boxes=NAME,scores=NAME, --task regress with --output-names",
        ),
        (
            {"mass": (1,), "height": ()},
            NUMBERS | {"output_names": "mass"},
            'several outputs, "height", "mass": pass all their names, in the order of the answer, with --output-names '
            "mass,height if each is one number; or select one",
        ),
        (
            {"mass": (1,), "height": (2,)},
            NUMBERS,
            'the output "height" of the network has shape (None, 2): with several outputs, task regress needs one',
        ),
        ((5, 4), BOXES, "task detect needs a network with an output for boxes and one for scores; that of tiny has a"),
        ({"x": (5, 4), "y": (5, 2)}, BOXES, 'the network has "x", "y"; pass --source-outputs boxes=NAME,scores=NAME'),
        (
            {"boxes": (5, 4), "y": (5, 2)},
            BOXES | {"source_outputs": "boxes=boxes,scores=z"},
            "invalid source_outputs 'boxes=boxes,scores=z': the network has no output 'z' for the scores; it has",
        ),
        ({"boxes": (5, 4), "y": (5, 2)}, BOXES | {"source_outputs": "boxes=boxes"}, "cannot infer which outputs are"),
        ({"boxes": (5, 3), "scores": (5, 2)}, BOXES, "returns shape (None, 5, 3) for the boxes: it must return (None"),
        ({"boxes": (5, 4), "scores": (5, 3)}, BOXES, "the network has 3 classes, but labels 'names.txt' have 2"),
        (
            {"boxes": (5, 4), "scores": (5, 2)},
            BOXES | {"background_class": "first"},
            "the network has 1 classes, but labels 'names.txt' have 2",
        ),
        (
            {"boxes": (5, 4), "scores": (6, 2)},
            BOXES,
            "the network returns 5 boxes, 6 scores per image: must be the same number",
        ),
        (SCORED | {"masks": (5,)}, BOXES | MASKS, "for the masks: it must return [images, boxes, height, width], or"),
        (
            YOLO | {"output1": (8, 3)},
            BOXES | YOLO_ROLES,
            "for the prototypes: it must return [images, height, width, co",
        ),
        (
            YOLO,
            BOXES | {"source_outputs": "boxes=output0,scores=output0,masks=output0"},
            "the output for the boxes and the masks needs another one: --source-outputs prototypes=NAME",
        ),
        (
            {"a": (20,)},
            BOXES | {"source_outputs": "boxes=a,scores=a"},
            "the output for boxes, scores has the shape (None, 20): must be [images, boxes, columns]",
        ),
        ({"boxes": (5, 4), "scores": (5,)}, BOXES, "assign it with --source-outputs classes=NAME"),
        ({"boxes": (5, 4), "scores": (5, 2)}, API, "the network's scores have 3 axes"),
        ((3, 4, 1), {"task": "segment", "outputs": None}, "needs --outputs for a network with one score per pixel"),
        ((3, 4), {"task": "segment"}, "invalid outputs 'probabilities': the network returns the class of each pixel"),
        (
            (3, 4, 2),
            {"task": "segment", "threshold": 0.3},
            "task segment has one for networks with one score per pixel",
        ),
        ((3, 4, 3), {"task": "segment"}, "the network has 3 classes, but labels 'names.txt' have 2"),
        ((3, 4, 2), {"task": "segment", "crop": "7/8"}, "invalid crop '7/8': task segment answers for the whole photo"),
        ((3, 4, 2), {"task": "segment", "orientation": "ignore"}, "invalid orientation 'ignore': task segment answers"),
        (
            {"boxes": (5, 4), "scores": (5,), "classes": (5,)},
            BOXES | {"background_class": "first"},
            "invalid background_class 'first': the network returns the class of each box itself",
        ),
        ((2,), {"boxes": "yxyx", "task": "classify"}, "invalid boxes 'yxyx': task classify has none, only detect"),
        ((2,), {"source_outputs": "boxes=a", "task": "classify"}, "task classify has none, only detect"),
        ((2,), BOXES | {"box_unit": None}, "tiny needs --box-unit: it cannot be inferred from the model"),
        (SCORED, BOXES | {"threshold": "0.1,0.2"}, "invalid threshold '0.1,0.2': 2 numbers; must be one"),
        ((2,), API | {"iou_threshold": 0.3}, "invalid iou_threshold '0.3': boxes tf-object-detection need none"),
        (
            (2,),
            {"source_outputs": "box=a"},
            "must be ROLE=NAME with commas, where ROLE is boxes, scores, classes, count",
        ),
        ((2,), {"source_outputs": "boxes=a,boxes=b"}, "must be ROLE=NAME with commas"),
        ((2,), {"iou_threshold": 2}, "invalid iou_threshold 2: must be a number from 0 to 1"),
    ],
)
def test_what_does_not_fit_is_explained(recipe_of: RecipeOf, shapes: Any, values: dict[str, Any], message: str) -> None:
    def choose() -> None:
        recipe = recipe_of(**values)
        outputs = trace(network(shapes), recipe).structured_outputs
        choose_task(recipe, {role: tuple(output.shape) for role, output in outputs.items()}, AB)

    with pytest.raises(BakeError, match=re.escape(message)):
        choose()


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (lambda _: None, "the network of tiny returns a NoneType: must return a tensor, or a dict of them by name"),
        (lambda images: [images, images], "the network of tiny returns a list: must return a tensor, or a dict of"),
        (lambda _: {}, "the network of tiny returns no outputs: must return at least one"),
        (tf.strings.as_string, "the network of tiny returns string: must return float, integer or bool"),
    ],
    ids=["nothing", "list", "empty", "text"],
)
def test_outputs_that_are_no_tensors_are_rejected(recipe_of: RecipeOf, outputs: Any, message: str) -> None:
    with pytest.raises(BakeError, match=re.escape(message)):
        trace(outputs, recipe_of())


def test_numbers_of_several_outputs_are_in_the_order_of_the_names(recipe_of: RecipeOf) -> None:
    def call(images: tf.Tensor) -> dict[str, tf.Tensor]:
        count = tf.shape(images)[0]
        return {"height": tf.fill([count, 1], 2.5), "mass": tf.fill([count], 70)}

    for names, expected in (("height,mass", [2.5, 70.0]), ("mass,height", [70.0, 2.5])):
        traced = trace(call, recipe_of(**NUMBERS | {"output_names": names}))
        outputs = traced(tf.zeros([2, *recipe_of().preprocessing.size, 3]))
        assert [expected, expected] == outputs["vector"].numpy().tolist()


def test_an_error_of_the_network_is_quoted_without_its_traceback(recipe_of: RecipeOf) -> None:
    def fail(_images: tf.Tensor) -> None:
        raise ValueError("3 is not 4")

    with pytest.raises(
        BakeError, match=r"^the network of tiny does not accept images \([^)]*\): ValueError: 3 is not 4$"
    ):
        trace(fail, recipe_of())


def test_a_network_for_colours_that_is_given_one_channel_needs_other_channels(recipe_of: RecipeOf) -> None:
    def call(images: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(images, [None, None, None, 3])[:, 0, 0]

    message = "one channel because of channels GRAY; pass RGB or BGR for colours: "
    with pytest.raises(SourceError, match=message):
        trace(call, recipe_of(channels="GRAY", scale="0..1"))


def test_boxes_say_that_the_task_is_detect(recipe_of: RecipeOf) -> None:
    values = recipe_of().to_values() | {"boxes": "xyxy", "box_unit": "fractions"}
    assert "detect" == complete_recipe({}, values).answers.task


def test_a_detector_may_be_used_for_another_task(recipe_of: RecipeOf) -> None:
    """What the source infers from the names of its outputs doesn't contradict the user."""
    known = {"task": "detect", "boxes": "tf-object-detection"}
    values = {name: value for name, value in recipe_of().to_values().items() if value is not None}
    assert "detect" == complete_recipe(known, values | {"outputs": None}).answers.task
    recipe = complete_recipe(known, values | {"task": "classify"})
    assert ("classify", None) == (recipe.answers.task, recipe.boxes.boxes)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (
            {"step": tf.constant(3)},
            r"the output 'step' of the network of tiny has the shape \(\): task tensors needs a row",
        ),
        ({"anchors": tf.zeros([100, 4])}, r"'anchors' .* has the shape \(100, 4\): task tensors needs a row per image"),
        ({}, "the network of tiny returns no outputs"),
    ],
)
def test_tensors_need_a_row_per_image(recipe_of: RecipeOf, outputs: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        trace(lambda _: outputs, recipe_of(task="tensors", labels=None, outputs=None))
