"""Options of commands, as `@options.out`: those that several share, and those of a recipe, made from its fields."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from savedmodel_bakery.defaults import SEARCH_S
from savedmodel_bakery.errors import PublishError, RecipeError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.recipe.fields import REQUIRED, Choice, Field, Switch, WholeNumber
from savedmodel_bakery.exporter.resources import photos_in
from savedmodel_bakery.groups import FloatRange, option_group
from savedmodel_bakery.storage.arguments import FolderOrUrl
from savedmodel_bakery.storage.folders import check_name

F = TypeVar("F", bound=Callable[..., Any])


def _check_name(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    try:
        return None if name is None else check_name(name)
    except PublishError as error:
        raise click.BadParameter(str(error), param_hint="--name") from error


out = click.option(
    "--out",
    type=FolderOrUrl(path_type=Path, file_okay=False),
    default=Path("saved_model"),
    show_default=True,
    metavar="FOLDER|URL",
    help="Folder of models, also in a bucket (s3://bucket/models); the version is written to OUT/NAME/VERSION.",
)
version = click.option("--version", type=click.IntRange(min=0), help="Version number.  [default: the next one]")
photos = click.option(
    "--photos",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    callback=lambda _context, _option, folder: photos_in(folder) if folder else None,
    help="Folder of photos to validate on.  [default: the example photos of the exporter]",
)
example = click.option(
    "--example",
    "example_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE.npz",
    help="Inputs to validate it with.  [default: generated]",
)
min_agreement = click.option(
    "--min-agreement",
    type=FloatRange(0, 1),
    show_default="0.95",
    help="For precision int8: share of photos whose answers must agree with those of float32.",
)
parity_html = click.option(
    "--parity-html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for an HTML page that shows the network's input for each photo.",
)
input_values = click.option(
    "--input-values",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE.json",
    help="For a network with inputs beside the image: their values for each photo, an object by the names of photos, "
    "of objects by input.  [default: random numbers; as image_2 the next photo]",
)
json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
verbose = click.option("-v", "--verbose", is_flag=True, help="Show the log of TensorFlow.")


def name(help_text: str) -> Callable[[F], F]:
    """Return the option `--name`, whose value is checked."""
    return click.option("--name", callback=_check_name, help=help_text)


_TOLERANCE = {
    "share": (
        FloatRange(0, 1),
        "0.99",
        "Part of the pixels of task segment, of the boxes of task detect or of the whole numbers of task tensors that "
        "must agree.",
    ),
    "iou": (FloatRange(0, 1), "0.9", "Intersection over union from which on two boxes of task detect agree."),
    "atol": (
        FloatRange(0),
        "0.01; task embed 0.001; regress and tensors 0.0001; image and keypoints 0.005; heads by task",
        "Allowed difference of an answer from the reference pipeline's …",
    ),
    "rtol": (
        FloatRange(0),
        "0; tasks regress, tensors and keypoints 0.01; heads by task",
        "… plus this part of the reference's answer.",
    ),
}
TOLERANCE_PARTS = tuple(_TOLERANCE)
tolerance = option_group(
    *(
        click.option(f"--parity-{part}", part, type=limits, show_default=default, help=text)
        for part, (limits, default, text) in _TOLERANCE.items()
    )
)
"""An option for each of `TOLERANCE_PARTS`, the parts of a task's tolerance."""


evidence = option_group(
    click.option(
        "--inputs",
        metavar="FILE.npz|MODULE:FUNCTION",
        help="What the network received in training for some of the photos: arrays by the names of files, or a "
        "function of a path. What the recipe does not state is found from it, what contradicts it is rejected.",
    ),
    click.option(
        "--predictions",
        metavar="FILE.csv|.json|.npz|MODULE:FUNCTION",
        help="What the network answered in training for some of the photos; used as --inputs is. A CSV file has file "
        "and a column per label, or file, label and probability.",
    ),
    click.option(
        "--labelled",
        type=click.Path(path_type=Path, exists=True),
        metavar="FOLDER|FILE.csv",
        help="Photos with their right labels: a folder with one folder per label, which --photos is by default, or "
        "file and label. They tell scale and channels, and show gross errors.",
    ),
    click.option(
        "--search-seconds",
        type=FloatRange(1),
        default=SEARCH_S,
        show_default=True,
        help="How long to search for a recipe that agrees with each of them, in wall-clock time.",
    ),
)
"""Options for what shows how the network was trained."""


class _FieldType(click.ParamType[Any]):
    """Text that the field itself converts, so that options and recipe files are rejected in the same words."""

    def __init__(self, field: Field) -> None:
        self.name = field.metavar
        self._field = field

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._field.convert(value)
        except RecipeError as error:
            self.fail(str(error), param, ctx)


def _field_option(field: Field) -> Callable[[F], F]:
    values, text = field.values, field.help_text
    if field.default is not REQUIRED:
        text += f"  [default: {field.when_unset if field.default is None else field.default}]"
    if isinstance(values, Switch):
        return click.option(f"{field.option}/--no-{field.option.removeprefix('--')}", default=None, help=text)
    field_type: click.ParamType[Any] = _FieldType(field)
    metavar = field.metavar
    if isinstance(values, Choice):
        # click would show them in lower case, because those are allowed too.
        field_type, metavar = click.Choice(values.choices, case_sensitive=False), f"[{'|'.join(values.choices)}]"
    elif isinstance(values, WholeNumber):
        field_type = click.IntRange(values.minimum, values.maximum)
    return click.option(field.option, type=field_type, metavar=metavar, help=text)


recipe = option_group(*map(_field_option, Recipe.FIELDS.values()))
"""An option for each field; it passes None if it is not used."""
