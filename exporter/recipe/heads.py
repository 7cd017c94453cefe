"""Heads: a network with several outputs of which each has a task of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe.fields import Field, FieldGroup, PathOrName, fields_of, read_tables, recipe_field
from savedmodel_bakery.exporter.recipe.model import Answers, Boxes, Keypoints, Source

GROUPS: dict[str, type[FieldGroup]] = {"answers": Answers, "boxes": Boxes, "keypoints": Keypoints}
"""The parts of a recipe that each head has."""

_FIELDS: dict[str, Field] = {
    **{name: declared for group in GROUPS.values() for name, declared in fields_of(group).items()},
    "source_outputs": fields_of(Source)["source_outputs"],
}
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_SIGNATURES = {"serving_default", "top_k", "classify", "regress", "pixels", "preprocess", "preprocess_2", "preview"}
_RESERVED = _SIGNATURES | {"ok", "error", "heads"}  # attributes of a result


@dataclass(frozen=True)
class Head:
    """A head.

    Attributes:
        name: the name of the head in the answers; a signature of the SavedModel has it too.
        output: the output of the network.
        values: the stated fields of its task, by name.
    """

    name: str
    output: str
    values: Mapping[str, Any]

    def to_table(self) -> dict[str, Any]:
        """Return the head as a table of a recipe file."""
        return {"name": self.name, "output": self.output, **self.values}


class Tables(PathOrName):
    """Values of a field: heads, as tables or as the path of a TOML file with them."""

    must_be = (
        "tables with a name, the network's output and a task with its fields, or a TOML file with them as [[heads]]"
    )

    def __init__(self) -> None:
        super().__init__("")

    def parse(self, value: object) -> tuple[Head, ...]:
        """See `Text.parse`. Raises RecipeError with the reason for a head that is not allowed."""
        if isinstance(value, str | Path):
            path = Path(value)
            heads: tuple[Head, ...] = self.resolve(self.parse(read_tables(path, "heads", "[[heads]]")), path.parent)
            return heads
        if not isinstance(value, list | tuple) or not value:
            raise ValueError
        heads = tuple(each if isinstance(each, Head) else _parse(each) for each in value)
        names = [head.name for head in heads]
        for name in names:
            if names.count(name) > 1:
                raise RecipeError(f"two heads are called {name!r}: their names must differ")
        return heads

    def resolve(self, value: Any, folder: Path) -> Any:
        """See `PathOrName.resolve`: the labels of heads are files."""
        labels = _FIELDS["labels"].values
        assert isinstance(labels, PathOrName)
        return tuple(
            replace(head, values={**head.values, "labels": labels.resolve(head.values["labels"], folder)})
            if "labels" in head.values
            else head
            for head in value
        )


def _parse(table: object) -> Head:
    if not isinstance(table, Mapping):
        raise ValueError
    values = {key: value for key, value in table.items() if value is not None}
    name = values.pop("name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED:
        raise RecipeError(
            f"invalid name {name!r} of a head: must be a letter, then letters, digits or _, other than "
            f"{', '.join(sorted(_RESERVED))}"
        )
    output = values.pop("output", name)
    if not isinstance(output, str):
        raise RecipeError(f"invalid output {output!r} of head {name!r}: must be the name of an output of the network")
    if values.get("task") in (None, "heads"):
        raise RecipeError(f"head {name!r} needs a task: one of {', '.join(_tasks())}")
    unknown = sorted(values.keys() - _FIELDS.keys())
    if unknown:
        raise RecipeError(
            f"head {name!r} has an unknown field {unknown[0]!r}; a head has name, output, {', '.join(_FIELDS)}"
        )
    try:
        return Head(name, output, {key: _FIELDS[key].convert(value) for key, value in values.items()})
    except RecipeError as error:
        raise RecipeError(f"head {name!r}: {error}") from error


def _tasks() -> list[str]:
    return [task for task in _FIELDS["task"].values.allowed.split(", ") if task != "heads"]


@dataclass(frozen=True, kw_only=True)
class Heads(FieldGroup):
    """The heads of a network with several outputs. For task heads only."""

    heads: tuple[Head, ...] | None = recipe_field(
        Tables(),
        "With task heads, the TOML file with a table [[heads]] for each head: its name, the network's output, a task "
        "and that task's fields.",
        metavar="FILE",
        when_unset="required for task heads",
        tasks=("heads",),
    )
