"""The recipe of a bake: every choice between the bytes of a photo and its labels, and its TOML file.

Options, TOML and documentation are generated from its fields. Doesn't import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from html import escape
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe.execution import OPTIMISATIONS, Batching, Optimisation
from savedmodel_bakery.exporter.recipe.fields import REQUIRED, Field, FieldGroup, PathOrName, Text, fields_of
from savedmodel_bakery.exporter.recipe.heads import GROUPS as HEAD_GROUPS
from savedmodel_bakery.exporter.recipe.heads import Heads
from savedmodel_bakery.exporter.recipe.model import (
    OBJECT_DETECTION_API,
    TASKS_WITH_TOP_K,
    TASKS_WITHOUT_LABELS,
    WHOLE_PHOTO_TASKS,
    Answers,
    Boxes,
    Keypoints,
    Source,
)
from savedmodel_bakery.exporter.recipe.preprocessing import (
    LETTERBOX,
    LETTERBOXES,
    MAX_WHITE,
    PADDED,
    PIXELS,
    RESIZE_METHODS,
    SCALES,
    STRETCH,
    Preprocessing,
    describe_scale,
)
from savedmodel_bakery.exporter.recipe.second_image import SecondImage
from savedmodel_bakery.files import parse_toml, read_small
from savedmodel_bakery.wire import version_folder

__all__ = [
    "LETTERBOX",
    "LETTERBOXES",
    "MAX_WHITE",
    "OPTIMISATIONS",
    "PADDED",
    "PIXELS",
    "RESIZE_METHODS",
    "SCALES",
    "STRETCH",
    "Answers",
    "Batching",
    "Optimisation",
    "Preprocessing",
    "Recipe",
    "RecipeFile",
    "Source",
    "complete_recipe",
    "convert_values",
    "describe_scale",
    "read_recipe_file",
]

GROUPS: dict[str, type[FieldGroup]] = {
    "source": Source,
    "answers": Answers,
    "boxes": Boxes,
    "keypoints": Keypoints,
    "heads": Heads,
    "preprocessing": Preprocessing,
    "second_image": SecondImage,
    "optimisation": Optimisation,
    "batching": Batching,
}
# The fields that these tasks need; others need labels and outputs.
_NEEDED: dict[str | None, tuple[str, ...]] = {
    **dict.fromkeys(TASKS_WITHOUT_LABELS, ()),
    "heads": ("heads",),
    "segment": ("labels",),
    "detect": ("labels", "outputs", "boxes", "box_unit"),
}
_FOUND = {"crop", "resize", "antialias", "scale", "channels"}  # by evidence of the training
_SHOWN_LENGTH = 40
_MODEL_NAME = Field("name", None, Text(), "Name to serve the model under.")


@dataclass(frozen=True, repr=False)
class Recipe:
    """A complete recipe; docs/reference/recipe.md lists its fields.

    Attributes:
        source: which model is baked.
        answers: what the network's outputs mean, and what the servable answers.
        preprocessing: how the bytes of a photo become the network's input.
        optimisation: how the network is made faster.
        batching: whether concurrent requests share runs of the network.
        boxes: how a detector states its boxes, and which of them the servable answers.
        keypoints: how a network states points, and what they are called.
        heads: the tasks of a network with several outputs.
        second_image: where the preprocessing of a second image differs.
        second_preprocessing: that of a second image.
        by_head: the recipes of the heads by name, each this one with the task of a head; empty without heads.

    Raises:
        RecipeError: a value is not for the task.
    """

    source: Source
    answers: Answers
    preprocessing: Preprocessing
    optimisation: Optimisation = field(default_factory=Optimisation)
    batching: Batching = field(default_factory=Batching)
    boxes: Boxes = field(default_factory=Boxes)
    keypoints: Keypoints = field(default_factory=Keypoints)
    heads: Heads = field(default_factory=Heads)
    second_image: SecondImage = field(default_factory=SecondImage)
    second_preprocessing: Preprocessing = field(init=False, repr=False, compare=False)
    by_head: Mapping[str, Recipe] = field(init=False, repr=False, compare=False)

    FIELDS: ClassVar[dict[str, Field]] = {
        name: declared for group in GROUPS.values() for name, declared in fields_of(group).items()
    }

    def __post_init__(self) -> None:
        self.check_task(self.answers.task)
        try:
            second = replace(self.preprocessing, **(self.second_image.image_2 or {}))
        except RecipeError as error:
            raise RecipeError(f"image_2: {error}") from error
        object.__setattr__(self, "second_preprocessing", second)
        object.__setattr__(self, "by_head", self._recipes_of_heads())

    def _recipes_of_heads(self) -> dict[str, Recipe]:
        recipes = {}
        for head in self.heads.heads or ():
            missing, _ = _missing_values(head.values)
            if missing:
                raise RecipeError(f"head {head.name!r} needs {_listed(missing)}")
            try:
                groups: dict[str, Any] = {
                    part: group(**{name: head.values[name] for name in fields_of(group) if name in head.values})
                    for part, group in HEAD_GROUPS.items()
                }
                outputs: dict[str, Any] = {
                    "source_output": head.output,
                    "source_outputs": head.values.get("source_outputs"),
                }
                recipes[head.name] = replace(self, heads=Heads(), source=replace(self.source, **outputs), **groups)
            except RecipeError as error:
                raise RecipeError(f"head {head.name!r}: {error}") from error
        return recipes

    def check_task(self, task: str | None) -> None:
        """Check that every stated value is for the task; None allows all."""
        for part in GROUPS:
            getattr(self, part).check_task(task)
        crop, orientation = self.preprocessing.crop, self.preprocessing.orientation
        if task in WHOLE_PHOTO_TASKS and not self.preprocessing.keeps_whole_photo:
            raise RecipeError(
                f"invalid crop {crop!r}: task {task} answers for the whole photo; must be none or letterbox"
            )
        if task in WHOLE_PHOTO_TASKS and orientation != "exif":
            raise RecipeError(
                f"invalid orientation {orientation!r}: task {task} answers for the upright photo; must be exif"
            )

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Recipe:
        """Create a recipe from the values of its fields, all in one mapping.

        Args:
            values: the values by the names of the fields; None means the default.

        Raises:
            RecipeError: a required value is missing, a name is unknown, or a value is not allowed.
        """
        values = convert_values(values)
        required = [name for name, field in cls.FIELDS.items() if field.default is REQUIRED and name not in values]
        for_labels, is_sure = _missing_values(values)
        missing = [field.option for name, field in cls.FIELDS.items() if name in (*required, *for_labels)]
        if required or (for_labels and is_sure):
            they, them = ("they", "them") if len(missing) > 1 else ("it", "it")
            has_task = not {"task", "labels", "outputs"}.isdisjoint(values)
            advice = (
                ""
                if has_task
                else f"; a model without labels needs a --task instead: {_listed(TASKS_WITHOUT_LABELS, 'or')}"
            )
            evidence = "" if _FOUND.isdisjoint(required) else ", or pass --predictions to find how photos are prepared"
            raise RecipeError(
                f"{values.get('model', 'the model')} needs {_listed(missing)}: {they} cannot be inferred from the "
                f"model. Pass {them} or state {them} in a --recipe file{evidence}{advice}"
            )
        parts: dict[str, Any] = {
            part: group(**{name: values[name] for name in fields_of(group) if name in values})
            for part, group in GROUPS.items()
        }
        return cls(**parts)

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> Recipe:
        """Read a complete recipe from a file, such as the `assets.extra/recipe.toml` of a version.

        Relative paths in the file refer to its folder, or in a version to the working directory.

        Examples:
            >>> from savedmodel_bakery import Recipe
            >>> Recipe.from_toml("saved_model/efficientnet_lite0/1/assets.extra/recipe.toml").preprocessing.crop
            '224/256'

        Raises:
            RecipeError: the file can't be read, or a value is missing or not allowed.
        """
        return cls.from_values(read_recipe_file(Path(path)).values)

    def with_(self, **changes: Any) -> Recipe:
        """Return this recipe with other values of some fields, by name; None is the default of a field.

        Examples:
            >>> from savedmodel_bakery import Recipe
            >>> recipe = Recipe.from_toml("saved_model/efficientnet_lite0/1/assets.extra/recipe.toml")
            >>> recipe.with_(crop="none").preprocessing.crop
            'none'

        Raises:
            RecipeError: a name is unknown, or a value is not allowed.
        """
        return Recipe.from_values({**self.to_values(), **changes})

    def __repr__(self) -> str:
        """Return the values that are not the defaults."""
        stated = {
            name: value for name, value in self.to_values().items() if value not in (None, self.FIELDS[name].default)
        }
        return f"<Recipe: {', '.join(f'{name}={_shortened(value)}' for name, value in stated.items())}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.to_toml())}</pre>"

    def to_values(self) -> dict[str, Any]:
        """Return the values of all fields by name; the inverse of `from_values`."""
        return {name: value for part in GROUPS for name, value in vars(getattr(self, part)).items()}

    def to_toml(self) -> str:
        """Return the recipe as a TOML file for `bake --recipe`."""
        import tomli_w

        values = {name: value for name, value in self.to_values().items() if value is not None}
        if self.answers.task not in (None, *TASKS_WITH_TOP_K):
            del values["top_k"]
        values["size"] = _shown_size(self.preprocessing.size)
        if second := values.get("image_2"):
            values["image_2"] = second | ({"size": _shown_size(second["size"])} if "size" in second else {})
        if self.heads.heads:
            values["heads"] = [head.to_table() for head in self.heads.heads]
        return tomli_w.dumps(values)


def convert_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values of fields, by name, to the types that a recipe stores; None counts as not stated."""
    unknown = sorted(values.keys() - Recipe.FIELDS.keys())
    if unknown:
        fields = "field" if len(unknown) == 1 else "fields"
        similar = dict.fromkeys(near for name in unknown for near in get_close_matches(name, Recipe.FIELDS))
        advice = f"did you mean {_listed(similar, 'or')}?" if similar else f"a recipe has {_listed(Recipe.FIELDS)}"
        raise RecipeError(f"unknown recipe {fields} {_listed(unknown)}; {advice}")
    return {name: Recipe.FIELDS[name].convert(value) for name, value in values.items() if value is not None}


def complete_recipe(
    known: Mapping[str, Any],
    values: Mapping[str, Any],
    *,
    like: Mapping[str, Any] = MappingProxyType({}),
    scaling_layer: str | None = None,
) -> Recipe:
    """Combine what a source knows about its model with the values that a user states.

    Args:
        known: the source's values. Its size, and channels GRAY, are properties of the network and can't be changed.
        values: the user's values; they override the source's. None counts as not stated.
        like: the preprocessing of the network that the user names as `like`. It overrides the source's, but the size.
        scaling_layer: the layer with which the network itself scales pixels; its input must be 0..255.
    """
    values = convert_values(values)
    if values.get("boxes") or values.get("source_outputs"):
        values = {"task": "detect", **values}
    if values.get("heads"):
        values = {"task": "heads", **values}
    if "point_names" in values:
        known = {name: value for name, value in known.items() if name != "skeleton"}
    if task := values.get("task"):
        known = {
            name: value
            for name, value in known.items()
            if name != "task" and task in (Recipe.FIELDS[name].tasks or [task])
        }
    like = {name: value for name, value in like.items() if name != "size" or name not in known}
    second = {**known.get("image_2", {}), **values.pop("image_2", {})}
    if second and "image_2" not in known:
        raise RecipeError("invalid image_2: the network takes one image; two are --source-input NAME,NAME")
    recipe = Recipe.from_values({**known, **like, **values, "image_2": second})
    model, preprocessing = recipe.source.model, recipe.preprocessing
    _check_known(preprocessing, known, model)
    own = {name: value for name, value in second.items() if value != getattr(preprocessing, name)}
    if second:
        _check_known(recipe.second_preprocessing, known["image_2"], f"image_2 of {model}")
    recipe = recipe.with_(image_2=own or None)
    if scaling_layer is not None and preprocessing.mean_and_std != SCALES[PIXELS]:
        origin = "" if "scale" in values else f" of like {preprocessing.like!r}"
        raise RecipeError(
            f"invalid scale {preprocessing.scale!r}{origin}: the layer {scaling_layer!r} of {model} already scales "
            f"pixels, so the scale must be {PIXELS}"
        )
    return recipe


def _check_known(preprocessing: Preprocessing, known: Mapping[str, Any], owner: str) -> None:
    """Check the properties of a network that can't be changed."""
    size = known.get("size", preprocessing.size)
    if preprocessing.size != size:
        stated, required = ("x".join(map(str, sides)) for sides in (preprocessing.size, size))
        raise RecipeError(f"invalid size {stated}: {owner} requires {required}")
    if known.get("channels") == "GRAY" and preprocessing.channels != "GRAY":
        raise RecipeError(f"invalid channels {preprocessing.channels}: {owner} requires GRAY")


class RecipeFile(NamedTuple):
    """The content of a recipe file."""

    name: str | None  # to serve the model under
    values: dict[str, Any]  # of some of the recipe's fields


def read_recipe_file(path: Path) -> RecipeFile:
    """Read a recipe file, which may state only some of the fields.

    Relative paths in a file refer to its folder; they are returned relative to the working directory. Those of a recipe
    that is stored in a version refer to the working directory already.
    """
    try:
        content = parse_toml(read_small(path).decode())
    except (OSError, ValueError) as error:
        raise RecipeError(f"cannot read the recipe file {path}: {error}") from error
    try:
        if not isinstance(heads := content.get("heads", []), list):
            raise RecipeError(f"invalid heads {heads!r}: must be tables [[heads]] in a recipe file")
        if not isinstance(second := content.get("image_2", {}), dict):
            raise RecipeError(f"invalid image_2 {second!r}: must be a table [image_2] in a recipe file")
        name = _MODEL_NAME.convert(content.pop("name", None))
        values = convert_values(content)
    except RecipeError as error:
        raise RecipeError(f"recipe file {path}: {error}") from error
    if path.resolve().parts[-2:] != version_folder.RECIPE.parts:
        for name_of_field, value in values.items():
            if isinstance(paths := Recipe.FIELDS[name_of_field].values, PathOrName):
                values[name_of_field] = paths.resolve(value, path.parent)
    return RecipeFile(name, values)


def _missing_values(values: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Return the names of fields that a task needs and that are not stated, and whether it is such a task.

    That is open if neither the task nor labels are stated: a network with one output may be for task regress, which
    shows when it is loaded.
    """
    task = values.get("task")
    needed = _NEEDED.get(task, ("labels", "outputs"))
    if task == "detect" and values.get("boxes") == OBJECT_DETECTION_API:
        needed = ("labels",)
    return [name for name in needed if name not in values], "task" in values or "labels" in values


def _shown_size(size: tuple[int, int]) -> int | str:
    height, width = size
    return height if height == width else f"{height}x{width}"


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 1]}…"


def _listed(names: Iterable[str], conjunction: str = "and") -> str:
    """Join names as in "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} {conjunction} {last}" if others else last
