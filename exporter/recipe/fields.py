"""Declares the fields of a recipe: each annotation states the help text and the allowed values of its field.

Command-line options, TOML and the table in docs/reference/recipe.md are generated from these declarations.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

from savedmodel_bakery.errors import RecipeError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """A field of a recipe; any text is allowed.

    Attributes:
        help: for `--help` and the docs; begins with a sentence that is enough for most readers.
        metavar: placeholder for the value in `--help`.
        when_unset: meaning of a missing value, for fields without a default.
        name: in Python and TOML; this and the following are set by `fields_of`.
        is_required: whether the recipe needs a value from the model or from the user.
        default: the value of a field that isn't required.
    """

    help: str
    metavar: str = "TEXT"
    when_unset: str = ""
    name: str = ""
    is_required: bool = False
    default: Any = None

    @property
    def option(self) -> str:
        """The command-line option."""
        return "--" + self.name.replace("_", "-")

    @property
    def allowed(self) -> str:
        """Allowed values, for the docs."""
        return self.metavar

    def convert(self, value: object) -> Any:
        """Convert a value given in Python, TOML or as an option.

        Raises:
            RecipeError: the value is not allowed.
        """
        if value is None and not self.is_required and self.default is None:
            return None
        try:
            return self.parse_value(value)
        except ValueError as error:
            raise RecipeError(f"invalid {self.name} {value!r}: {error}") from None

    def parse_value(self, value: object) -> Any:
        """Return the value as the recipe stores it.

        Raises:
            ValueError: the value is not allowed; the message states what is, as "must be …".
        """
        if not isinstance(value, str):
            raise ValueError("must be text")
        return value

    def to_plain(self, value: Any) -> Any:
        """Return a converted value as TOML stores it."""
        return value

    def resolve(self, value: Any, folder: Path) -> Any:  # noqa: ARG002 - for subclasses
        """Return a converted value of a recipe file in `folder`, with paths relative to the working directory."""
        return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class PathOrName(Field):
    """The path of a file or folder, or a name.

    Attributes:
        names: regular expression of the names.
        path_prefixes: texts of which one may precede a path.
    """

    names: str
    path_prefixes: tuple[str, ...] = ()

    def resolve(self, value: str, folder: Path) -> str:
        """Return a name, or the path relative to the working directory; absolute paths don't change."""
        prefix = next((prefix for prefix in self.path_prefixes if value.startswith(prefix)), "")
        path = value.removeprefix(prefix)
        if Path(path).is_absolute() or (not prefix and re.fullmatch(self.names, value)):
            return value
        return prefix + os.path.relpath(folder / path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parsed(Field):
    """Text that `parse` accepts, stored as text. `parse` raises ValueError with "must be …"."""

    parse: Callable[[str], object]

    def parse_value(self, value: object) -> str:
        """Check the text; a TOML file may contain a number."""
        text = str(value)
        self.parse(text)
        return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice(Field):
    """One of several words."""

    choices: tuple[str, ...]

    def parse_value(self, value: object) -> str:
        """Check that the value is one of the choices."""
        if value not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}")
        return str(value)

    @property
    def allowed(self) -> str:
        """The choices."""
        return ", ".join(self.choices)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Switch(Field):
    """True or false."""

    def parse_value(self, value: object) -> bool:
        """Check that the value is a bool."""
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
        return value

    @property
    def allowed(self) -> str:
        """Both values."""
        return "true, false"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WholeNumber(Field):
    """A whole number from `minimum` to `maximum`, both inclusive."""

    minimum: int
    maximum: int | None = None

    def parse_value(self, value: object) -> int:
        """Check the type and the range."""
        if type(value) is not int or value < self.minimum or (self.maximum is not None and value > self.maximum):
            raise ValueError(f"must be a {self.allowed}")
        return value

    @property
    def allowed(self) -> str:
        """The range."""
        return f"whole number from {self.minimum}" + ("" if self.maximum is None else f" to {self.maximum}")


class FieldGroup:
    """Base of the dataclasses that make up a recipe: converts and checks every field on construction.

    Raises:
        RecipeError: a value is not allowed.
    """

    TASKS_WITH: ClassVar[Mapping[str, Collection[str]]] = {}
    """The tasks that a field is for, by the field's name; others reject it. Other fields are for all tasks."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __post_init__(self) -> None:
        for name, field in fields_of(type(self)).items():
            object.__setattr__(self, name, field.convert(getattr(self, name)))
        self._check_combination()

    def check_task(self, task: str | None) -> None:
        """Check that every stated value is for the task; None allows all.

        Raises:
            RecipeError: such as `invalid threshold '0.5': task embed has none, only binary, multilabel, detect`.
        """
        for name, tasks in self.TASKS_WITH.items():
            value = getattr(self, name)
            if task is not None and value is not None and task not in tasks:
                raise RecipeError(f"invalid {name} {value!r}: task {task} has none, only {', '.join(tasks)}")

    def _check_combination(self) -> None:
        """Reject values that are allowed on their own, but not together."""


def fields_of(group: type[FieldGroup]) -> dict[str, Field]:
    """Return the fields of a group by name, in the order of declaration."""
    hints = get_type_hints(group, include_extras=True)
    fields: dict[str, Field] = {}
    for attribute in dataclasses.fields(group):
        (field,) = hints[attribute.name].__metadata__
        if attribute.default is dataclasses.MISSING:
            fields[attribute.name] = dataclasses.replace(field, name=attribute.name, is_required=True)
        else:
            fields[attribute.name] = dataclasses.replace(field, name=attribute.name, default=attribute.default)
    return fields
