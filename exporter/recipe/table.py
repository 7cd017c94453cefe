"""Generates the table of recipe fields in docs/recipe.md."""

from __future__ import annotations

from savedmodel_bakery.exporter.recipe.fields import Field
from savedmodel_bakery.exporter.recipe.recipe import Recipe

_HEADER = ("field", "option", "values", "default", "meaning")


def markdown_table() -> str:
    """Return one row per field of the recipe."""
    rows = [_HEADER, ("---",) * len(_HEADER), *map(_row, Recipe.FIELDS.values())]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(field: Field) -> tuple[str, ...]:
    declaration = field.declaration
    if field.is_required:
        default = "from the model, else required"
    else:
        default = declaration.when_unset if field.default is None else str(field.default).replace(",", ", ")
    cells = (f"`{field.name}`", f"`{field.option}`", declaration.allowed, default, declaration.help)
    return tuple(cell.replace("|", "\\|") for cell in cells)
