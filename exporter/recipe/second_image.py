"""The second image of a network that takes two: how its preprocessing differs from that of the first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe.fields import Field, FieldGroup, Text, fields_of, read_tables, recipe_field
from savedmodel_bakery.exporter.recipe.preprocessing import Preprocessing

_FIELDS: dict[str, Field] = {name: field for name, field in fields_of(Preprocessing).items() if name != "like"}


class Table(Text):
    """Values of a field: fields of the preprocessing by name, as a table or as the path of a TOML file with it."""

    must_be = "a table with fields of the preprocessing, or a TOML file with them as [image_2]"

    def parse(self, value: object) -> dict[str, Any]:
        """See `Text.parse`. Raises RecipeError with the reason for a field that is not allowed."""
        if isinstance(value, str | Path):
            value = read_tables(Path(value), "image_2", "a table [image_2]")
        if not isinstance(value, Mapping):
            raise ValueError
        unknown = sorted(value.keys() - _FIELDS.keys())
        if unknown:
            raise RecipeError(f"image_2 has an unknown field {unknown[0]!r}; it can have {', '.join(_FIELDS)}")
        try:
            return {name: _FIELDS[name].convert(each) for name, each in value.items() if each is not None}
        except RecipeError as error:
            raise RecipeError(f"image_2: {error}") from error


@dataclass(frozen=True, kw_only=True)
class SecondImage(FieldGroup):
    """How a second image becomes the network's input, where that differs from the first.

    For networks with two images.
    """

    image_2: Mapping[str, Any] | None = recipe_field(
        Table(),
        "TOML file with a table [image_2]: the fields of the preprocessing, other than `like`, that differ for the "
        "second image.",
        metavar="FILE",
        when_unset="as the first image; the size and the number of channels that the network needs",
    )
