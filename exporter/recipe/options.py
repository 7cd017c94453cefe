"""Generates the command-line options of a recipe from its fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from savedmodel_bakery.exporter.errors import RecipeError
from savedmodel_bakery.exporter.recipe.fields import Choice, Field, Switch, WholeNumber
from savedmodel_bakery.exporter.recipe.recipe import Recipe

F = TypeVar("F", bound=Callable[..., Any])


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


def recipe_options(command: F) -> F:
    """Add an option per field to a command; an option that is not used passes None."""
    for field in reversed(Recipe.FIELDS.values()):
        command = _option(field)(command)
    return command


def _option(field: Field) -> Callable[[F], F]:
    default = field.when_unset if field.default is None else field.default
    text = field.help + ("" if field.is_required else f"  [default: {default}]")
    if isinstance(field, Switch):
        return click.option(f"{field.option}/--no-{field.option.removeprefix('--')}", default=None, help=text)
    metavar = f"[{'|'.join(field.choices)}]" if isinstance(field, Choice) else field.metavar
    return click.option(field.option, type=_type(field), metavar=metavar, help=text)


def _type(field: Field) -> click.ParamType[Any]:
    if isinstance(field, Choice):
        return click.Choice(field.choices, case_sensitive=False)
    if isinstance(field, WholeNumber):
        return click.IntRange(field.minimum, field.maximum)
    return _FieldType(field)
