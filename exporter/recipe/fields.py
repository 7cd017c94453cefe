"""Declares the fields of a recipe: each states its help text and its allowed values.

Command-line options, TOML and the table in docs/reference/recipe.md are generated from these declarations.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, ClassVar

from savedmodel_bakery.errors import RecipeError, quote
from savedmodel_bakery.files import parse_toml, read_small

REQUIRED = dataclasses.MISSING
"""The default of a field whose value the model or the user must state."""


class Text:
    """Values of a field: any text."""

    must_be = "text"  # the end of the message about another value
    allowed = ""  # the allowed values, for the docs; empty if the field's metavar says it

    def parse(self, value: object) -> Any:
        """Return a value given in Python, TOML or as an option as the recipe stores it; ValueError if not allowed."""
        if not isinstance(value, str):
            raise ValueError
        return value


class PathOrName(Text):
    """Values of a field: paths of files or folders, after one of some prefixes or none; or names that match a regex."""

    def __init__(self, names: str, *, path_prefixes: tuple[str, ...] = ()) -> None:
        self._names = names
        self._path_prefixes = path_prefixes

    def parse(self, value: object) -> Any:
        """See `Text.parse`."""
        return super().parse(os.fspath(value) if isinstance(value, os.PathLike) else value)

    def resolve(self, value: Any, folder: Path) -> Any:
        """Return a name, or a path that refers to `folder` relative to the working directory."""
        prefix = next((prefix for prefix in self._path_prefixes if value.startswith(prefix)), "")
        path = value.removeprefix(prefix)
        if Path(path).is_absolute() or (not prefix and re.fullmatch(self._names, value)):
            return value
        return prefix + os.path.relpath(folder / path)


class PathsOrNames(PathOrName):
    """Values of a field: one or several of `PathOrName`, separated by commas."""

    def resolve(self, value: Any, folder: Path) -> Any:
        """See `PathOrName.resolve`."""
        return ",".join(super(PathsOrNames, self).resolve(part.strip(), folder) for part in value.split(","))


class LabelNames(PathOrName):
    """Values of a field: the name of a label set, the path of a label file, or the names themselves, a tuple by id."""

    must_be = "a label set, the path of a file, a list of names or a dict from id to name"

    def parse(self, value: object) -> Any:
        """See `Text.parse`. An id without a name has an empty one. Raises RecipeError for invalid names."""
        if isinstance(value, str | os.PathLike):
            return super().parse(value)
        if not isinstance(value, Iterable):
            raise ValueError
        from savedmodel_bakery.label_files import LabelFileError, check_names  # imports protobuf

        try:
            names = {label.id: label.name for label in check_names(value)}
        except LabelFileError as error:
            raise RecipeError(str(error)) from error
        return tuple(names.get(number, "") for number in range(max(names) + 1))

    def resolve(self, value: Any, folder: Path) -> Any:
        """See `PathOrName.resolve`."""
        return super().resolve(value, folder) if isinstance(value, str) else value


class Parsed(Text):
    """Values of a field: text, stored as it is, that a function parses; it raises ValueError for others."""

    def __init__(self, parse_text: Callable[[str], object], must_be: str) -> None:
        self._parse_text = parse_text
        self.must_be = must_be

    def parse(self, value: object) -> str:
        """See `Text.parse`. A TOML file may contain a number."""
        text = str(value)
        self._parse_text(text)
        return text


class Choice(Text):
    """Values of a field: one of several words."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices
        self.allowed = ", ".join(choices)
        self.must_be = f"one of {self.allowed}"

    def parse(self, value: object) -> str:
        """See `Text.parse`."""
        if value not in self.choices:
            raise ValueError
        return str(value)


class Switch(Text):
    """Values of a field: true or false."""

    must_be = "true or false"
    allowed = "true, false"

    def parse(self, value: object) -> bool:
        """See `Text.parse`."""
        if not isinstance(value, bool):
            raise ValueError
        return value


class WholeNumber(Text):
    """Values of a field: whole numbers from `minimum` to `maximum`, both inclusive."""

    def __init__(self, minimum: int, maximum: int | None = None) -> None:
        self.minimum, self.maximum = minimum, maximum
        self.allowed = f"whole number from {minimum}" + ("" if maximum is None else f" to {maximum}")
        self.must_be = f"a {self.allowed}"

    def parse(self, value: object) -> int:
        """See `Text.parse`."""
        if type(value) is not int or value < self.minimum or (self.maximum is not None and value > self.maximum):
            raise ValueError
        return value


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a recipe."""

    name: str  # in Python and TOML
    default: Any  # `REQUIRED`, or None if a missing value means `when_unset`
    values: Text
    help_text: str  # begins with a sentence that is enough for most readers
    metavar: str = "TEXT"
    when_unset: str = ""
    tasks: Collection[str] = ()  # that the field is for; empty for all

    @property
    def option(self) -> str:
        """The command-line option."""
        return "--" + self.name.replace("_", "-")

    def convert(self, value: object) -> Any:
        """Convert a value given in Python, TOML or as an option."""
        if value is None and self.default is None:
            return None
        try:
            return self.values.parse(value)
        except (ValueError, ZeroDivisionError, RecursionError):  # of a fraction such as 1/0, or of nested lists
            raise RecipeError(f"invalid {self.name} {quote(value)}: must be {self.values.must_be}") from None


def recipe_field(values: Text, help_text: str, *, default: Any = None, **attributes: Any) -> Any:
    """Declare a field in the class of a group; for the arguments see `Field`."""
    return dataclasses.field(default=default, metadata={"values": values, "help_text": help_text, **attributes})


class FieldGroup:
    """Base of the dataclasses that make up a recipe: converts and checks every field on construction."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __post_init__(self) -> None:
        for name, field in fields_of(type(self)).items():
            object.__setattr__(self, name, field.convert(getattr(self, name)))
        self._check_combination()

    def check_task(self, task: str | None) -> None:
        """Check that every stated value is for the task; None allows all."""
        for name, field in fields_of(type(self)).items():
            value = getattr(self, name)
            if field.tasks and task is not None and value is not None and task not in field.tasks:
                raise RecipeError(f"invalid {name} {quote(value)}: task {task} has none, only {', '.join(field.tasks)}")

    def _check_combination(self) -> None:
        """Reject values that are allowed on their own, but not together."""


def read_tables(path: Path, name: str, shown: str) -> Any:
    """Return what a TOML file states under a name, and nothing else; messages show it as `shown`."""
    try:
        content = parse_toml(read_small(path).decode())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RecipeError(f"cannot read the {name} in {quote(str(path))}: {reason}") from error
    if content.keys() != {name}:
        raise RecipeError(f"{path} must have {shown} and nothing else")
    return content[name]


def fields_of(group: type[FieldGroup]) -> dict[str, Field]:
    """Return the fields of a group by name, in the order of declaration."""
    return {field.name: Field(field.name, field.default, **field.metadata) for field in dataclasses.fields(group)}
