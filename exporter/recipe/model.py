"""Source, answers and boxes: which model is baked, what its outputs mean, and what the servable answers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe.fields import (
    REQUIRED,
    Choice,
    FieldGroup,
    LabelNames,
    Parsed,
    PathOrName,
    Switch,
    Text,
    WholeNumber,
    recipe_field,
)

LABELLED_TASKS = ("classify", "binary", "multilabel", "detect", "segment")
TASKS_WITH_TOP_K = ("classify", "binary", "multilabel")
TASKS_WITHOUT_LABELS = ("embed", "regress", "keypoints", "image", "tensors", "heads")
WHOLE_PHOTO_TASKS = ("detect", "segment", "keypoints")
OBJECT_DETECTION_API = "tf-object-detection"
_ROLES = ("boxes", "scores", "classes", "count", "masks", "prototypes")
_NAME = re.compile(r"[^\W\d][\w.-]*")


def parse_outputs(text: str) -> dict[str, str]:
    """Parse names of outputs by role, such as `boxes=NAME,scores=NAME`."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    names = {role.strip(): name.strip() for role, _, name in pairs}
    if not all(names.values()) or not names.keys() <= set(_ROLES) or len(names) < len(pairs):
        raise ValueError
    return names


def parse_thresholds(text: str) -> tuple[float, ...]:
    """Parse one probability, or several with commas."""
    return tuple(map(parse_fraction, text.split(",")))


def parse_fraction(text: str) -> float:
    """Parse a number from 0 to 1."""
    fraction = float(text)
    if not 0 <= fraction <= 1:
        raise ValueError
    return fraction


def _parts(text: str, separator: str = ",") -> tuple[str, ...]:
    """Return the parts of a text, none of which may be empty."""
    parts = tuple(part.strip() for part in text.split(separator))
    if not all(parts):
        raise ValueError
    return parts


def parse_names(text: str) -> tuple[str, ...]:
    """Parse different names with commas."""
    names = _parts(text)
    if not all(map(_NAME.fullmatch, names)) or len(set(names)) < len(names) or {"ok", "error"} & set(names):
        raise ValueError
    return names


def parse_point_names(text: str) -> tuple[str, ...]:
    """Parse different names with commas, without `-`, which joins two of them in a skeleton."""
    names = _parts(text)
    if len(set(names)) < len(names) or "-" in text:
        raise ValueError
    return names


def parse_skeleton(text: str) -> tuple[tuple[str, str], ...]:
    """Parse pairs of names of points: `nose-left_eye,nose-right_eye`."""
    pairs = []
    for pair in _parts(text):
        first, second = _parts(pair, "-")
        pairs.append((first, second))
    return tuple(pairs)


def parse_units(text: str) -> tuple[str, ...]:
    """Parse units with commas."""
    units = _parts(text)
    if set(text) & set("[]'\""):
        raise ValueError
    return units


def parse_range(text: str) -> tuple[float, float]:
    """Parse the values that are black and white: `0..1`."""
    lowest, highest = map(float, text.split(".."))
    if not -math.inf < lowest < highest < math.inf:
        raise ValueError
    return lowest, highest


def parse_number(text: str) -> float:
    """Parse a finite number."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


def parse_bits(text: str) -> int:
    """Parse the bits of a level: `8` or `16`."""
    if text not in ("8", "16"):
        raise ValueError
    return int(text)


@dataclass(frozen=True, kw_only=True)
class Source(FieldGroup):
    """Which model is baked."""

    model: str = recipe_field(
        PathOrName(
            r"efficientnet-lite.*|keras:.*|https?://.*|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*",
            path_prefixes=("hub:", "keras-hub:"),
        ),
        "efficientnet-lite0, -lite1 or -lite2; keras:NAME; a TF Hub or Kaggle URL, or hub:FOLDER; keras-hub:FOLDER; a "
        ".keras, .h5 or .onnx file; a SavedModel's folder; package.module:callable.",
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
        Text(),
        "Input of the network for the image; with a comma, two inputs for two images, `image` and `image_2`. Other "
        "inputs keep their names.",
        metavar="NAME[,NAME]",
        when_unset="the only one that takes images",
    )
    source_output: str | None = recipe_field(
        Text(), "Output of that signature.", metavar="NAME", when_unset="its only one"
    )
    source_outputs: str | None = recipe_field(
        Parsed(parse_outputs, f"ROLE=NAME with commas, where ROLE is {', '.join(_ROLES)}"),
        "With task detect, the network's outputs: boxes and scores, and where it has them, classes, count, masks and "
        "prototypes. An output may be named for several: its columns are then the boxes, the scores and the masks.",
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
    custom_objects: str | None = recipe_field(
        Text(),
        "Python module whose classes and functions the layers of a .keras or .h5 file are; it may be in the working "
        "directory.",
        metavar="MODULE",
        when_unset="none",
    )
    trust_model: bool | None = recipe_field(
        Switch(),
        "Whether to run code that a .keras file contains, such as a Lambda layer's. Only for files of people whom you "
        "trust.",
        when_unset="false",
    )
    onnx2tf: str | None = recipe_field(
        PathOrName(r"[^/\\]+"),  # a program without a folder is searched as a shell does
        "Python interpreter of an environment with onnx2tf, which converts an .onnx file. The version's answers are "
        "compared with those of the file; see --reference.",
        metavar="PYTHON",
        when_unset="this one",
    )


@dataclass(frozen=True, kw_only=True)
class Answers(FieldGroup):
    """What the network's outputs mean, and what the servable answers."""

    task: str | None = recipe_field(
        Choice(*LABELLED_TASKS, *TASKS_WITHOUT_LABELS),
        "What the outputs mean: classify is one of several labels; binary is one of two, with one output for the "
        "second; multilabel is any number of labels; detect is boxes with labels; segment is a label per pixel; embed "
        "is a vector; regress is one number or several; keypoints is places by name; image is a picture; tensors is "
        "all outputs as they are; heads is a task for each of several outputs.",
        when_unset="inferred: with one output binary, or without labels regress; otherwise multilabel after a "
        "sigmoid, else classify; detect if the outputs have the names of boxes and scores",
    )
    labels: str | tuple[str, ...] | None = recipe_field(
        LabelNames("imagenet|imagenet1001"),
        "A label set that comes with the exporter (imagenet, imagenet1001) or a .txt, .json, .csv or .pbtxt file; in a "
        "recipe file also a list of the names.",
        metavar="SET|FILE",
        when_unset="required for tasks with labels",
        tasks=LABELLED_TASKS,
    )
    outputs: str | None = recipe_field(
        Choice("probabilities", "logits"),
        "Values that the network returns; a softmax is added to logits, or for tasks binary and multilabel a sigmoid.",
        when_unset="required for tasks with labels, other than segment",
        tasks=LABELLED_TASKS,
    )
    top_k: int = recipe_field(
        WholeNumber(1),
        "Number of labels in a response, or all classes if there are fewer than that.",
        default=5,
        metavar="K",
    )
    threshold: str | None = recipe_field(
        Parsed(parse_thresholds, "a number from 0 to 1, or one per label with commas"),
        "The probability from which on the answer is the second label of task binary, or has a label of task "
        "multilabel or a box of task detect, or above which a pixel of task segment has the second label, if the "
        "network returns one score per pixel; for multilabel also one per label, with commas.",
        metavar="PROBABILITY",
        when_unset="0.5",
        tasks=("binary", "multilabel", "detect", "segment"),
    )
    normalise: str | None = recipe_field(
        Choice("none", "l2"),
        "With task embed, l2 divides each vector by its length.",
        when_unset="none",
        tasks=("embed",),
    )
    output_names: str | None = recipe_field(
        Parsed(parse_names, "different names with commas, such as width,height, other than ok and error"),
        "With task regress, the names of the numbers.",
        metavar="NAME,…",
        when_unset="value for a single number",
        tasks=("regress",),
    )
    output_range: str | None = recipe_field(
        Parsed(parse_range, "two numbers with .. between them, the lower one first, such as 0..1 or -1..1"),
        "With task image, the network's values that are black and white; those beyond are clipped.",
        metavar="BLACK..WHITE",
        when_unset="required for task image",
        tasks=("image",),
    )
    output_size: str | None = recipe_field(
        Choice("network", "photo"),
        "With task image, the size of the picture: that of the network's output, or of the upright photo, without the "
        "margins of a letterbox.",
        when_unset="network",
        tasks=("image",),
    )
    output_bits: str | None = recipe_field(
        Parsed(parse_bits, "8 or 16"),
        "With task image, bits of a level in the PNG file.",
        metavar="8|16",
        when_unset="8",
        tasks=("image",),
    )
    probabilities: bool | None = recipe_field(
        Switch(),
        "With task segment, whether there is a second map: the probability of each pixel's class.",
        when_unset="false",
        tasks=("segment",),
    )
    units: str | None = recipe_field(
        Parsed(parse_units, "text with a comma between units, such as m,kg"),
        "With task regress, the units of the numbers, for people who read the recipe.",
        metavar="UNIT,…",
        when_unset="none",
        tasks=("regress",),
    )

    @property
    def labels_title(self) -> str:
        """What messages call the labels, the subject of a sentence in the plural."""
        return f"labels {self.labels!r}" if isinstance(self.labels, str) else "the labels"


@dataclass(frozen=True, kw_only=True)
class Boxes(FieldGroup):
    """How a detector states its boxes, and which of them the servable answers. For task detect only."""

    boxes: str | None = recipe_field(
        Choice("yxyx", "xyxy", "cxcywh", OBJECT_DETECTION_API),
        "How task detect's network states a box: by its edges, top left first, or by its centre and size; "
        f"{OBJECT_DETECTION_API} has the outputs of TensorFlow's Object Detection API, without duplicates.",
        when_unset=f"{OBJECT_DETECTION_API} if an output is named detection_boxes, else required for task detect",
        tasks=("detect",),
    )
    box_unit: str | None = recipe_field(
        Choice("fractions", "pixels"),
        "Unit of the boxes: fractions of the network's input, or its pixels.",
        when_unset=f"fractions with {OBJECT_DETECTION_API}, else required for task detect",
        tasks=("detect",),
    )
    iou_threshold: str | None = recipe_field(
        Parsed(parse_fraction, "a number from 0 to 1"),
        "Drops the worse of two boxes with the same label that overlap by more (intersection over union).",
        metavar="IOU",
        when_unset="0.5",
        tasks=("detect",),
    )
    max_boxes: int | None = recipe_field(
        WholeNumber(1, 1_000), "Number of boxes in an answer.", metavar="N", when_unset="100", tasks=("detect",)
    )
    background_class: str | None = recipe_field(
        Choice("none", "first", "last"),
        "Which of the network's classes means no object. Logits become probabilities by a softmax if there is one, "
        "else by a sigmoid.",
        when_unset="none",
        tasks=("detect",),
    )
    mask_area: str | None = recipe_field(
        Choice("box", "input"),
        "What a mask of the network covers: its box, or the network's input.",
        when_unset=f"box with {OBJECT_DETECTION_API}, input with prototypes, else required for a network with masks",
        tasks=("detect",),
    )
    mask_threshold: str | None = recipe_field(
        Parsed(parse_number, "a number, such as 0.5"),
        "Value of a mask above which a pixel is of the object: 0.5 for probabilities, 0 for logits.",
        metavar="VALUE",
        when_unset="0.5; 0 with prototypes",
        tasks=("detect",),
    )

    def _check_combination(self) -> None:
        if self.boxes == OBJECT_DETECTION_API:
            for name in ("box_unit", "iou_threshold", "background_class"):
                value = getattr(self, name)
                if value is not None:
                    raise RecipeError(f"invalid {name} {value!r}: boxes {OBJECT_DETECTION_API} need none")


@dataclass(frozen=True, kw_only=True)
class Keypoints(FieldGroup):
    """How a network states points, and what they are called. For task keypoints only."""

    points: str | None = recipe_field(
        Choice("yx", "xy"),
        "Order of the coordinates of a point. Heat maps have none.",
        when_unset="required for task keypoints with coordinates",
        tasks=("keypoints",),
    )
    point_unit: str | None = recipe_field(
        Choice("fractions", "pixels"),
        "Unit of the coordinates: fractions of the network's input, or its pixels.",
        when_unset="required for task keypoints with coordinates",
        tasks=("keypoints",),
    )
    point_names: str | None = recipe_field(
        Parsed(parse_point_names, "different names with commas, without -, such as nose,left_eye"),
        "Names of the points, in the order of the network.",
        metavar="NAME,…",
        when_unset="their numbers from 0",
        tasks=("keypoints",),
    )
    skeleton: str | None = recipe_field(
        Parsed(parse_skeleton, "pairs of names of points, such as nose-left_eye,nose-right_eye"),
        "Pairs of points that drawings join by a line.",
        metavar="NAME-NAME,…",
        when_unset="none",
        tasks=("keypoints",),
    )
