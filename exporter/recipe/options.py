"""Generates the command-line options of a recipe from its fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from savedmodel_bakery.exporter.errors import RecipeError
from savedmodel_bakery.exporter.recipe.fields import Choice, Field, Switch, Text, WholeNumber
from savedmodel_bakery.exporter.recipe.recipe import Recipe

F = TypeVar("F", bound=Callable[..., Any])


class _FieldType(click.ParamType[Any]):
    """Text that the field itself converts, so that options and recipe files are rejected in the same words."""

    def __init__(self, field: Field) -> None:
        self.name = field.declaration.metavar
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
    declaration = field.declaration
    if isinstance(declaration, Switch):
        name = field.option.removeprefix("--")
        return click.option(f"--{name}/--no-{name}", default=None, help=_help(field))
    return click.option(field.option, type=_type(field), metavar=_metavar(declaration), help=_help(field))


def _type(field: Field) -> click.ParamType[Any]:
    declaration = field.declaration
    if isinstance(declaration, Choice):
        return click.Choice(declaration.choices, case_sensitive=False)
    if isinstance(declaration, WholeNumber):
        return click.IntRange(declaration.minimum, declaration.maximum)
    return _FieldType(field)


def _metavar(declaration: Text) -> str:
    return f"[{'|'.join(declaration.choices)}]" if isinstance(declaration, Choice) else declaration.metavar


def _help(field: Field) -> str:
    default = field.declaration.when_unset if field.default is None else field.default
    return field.declaration.help + ("" if field.is_required else f"  [default: {default}]")
