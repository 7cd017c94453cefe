"""Generates the tables of recipe fields in docs/recipe.md."""

from __future__ import annotations

import inspect

from savedmodel_bakery.exporter.recipe.fields import Field, FieldGroup, fields_of
from savedmodel_bakery.exporter.recipe.recipe import GROUPS

_HEADER = ("field", "option", "values", "default", "meaning")


def markdown_tables() -> str:
    """Return a section per part of the recipe, with a table of its fields."""
    return "\n".join(_section(part, group) for part, group in GROUPS.items())


def _section(part: str, group: type[FieldGroup]) -> str:
    summary = (inspect.getdoc(group) or "").splitlines()[0]
    rows = [_HEADER, ("---",) * len(_HEADER), *map(_row, fields_of(group).values())]
    return f"## {part.capitalize()}\n\n{summary}\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(field: Field) -> tuple[str, ...]:
    declaration = field.declaration
    if field.is_required:
        default = declaration.when_unset or "from the model, else required"
    else:
        default = declaration.when_unset if field.default is None else f"`{field.default}`"
    cells = (f"`{field.name}`", f"`{field.option}`", declaration.allowed, default, declaration.help)
    return tuple(cell.replace("|", "\\|") for cell in cells)
