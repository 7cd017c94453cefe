"""Declares the fields of a recipe: each annotation states the help text and the allowed values of its field.

Command-line options, TOML and the table in docs/recipe.md are generated from these declarations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, get_type_hints

from savedmodel_bakery.exporter.errors import RecipeError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text:
    """Any text.

    Attributes:
        help: for `--help` and the docs; begins with a sentence that is enough for most readers.
        metavar: placeholder for the value in `--help`.
        when_unset: meaning of a missing value, for fields without a default.
    """

    help: str
    metavar: str = "TEXT"
    when_unset: str = ""

    def convert(self, value: object) -> Any:
        """Convert a value given in Python, TOML or as an option.

        Raises:
            ValueError: the value is not allowed; the message states what is, as "must be …".
        """
        if not isinstance(value, str):
            raise ValueError("must be text")
        return value

    def to_plain(self, value: Any) -> Any:
        """Return a converted value as TOML stores it."""
        return value

    @property
    def allowed(self) -> str:
        """Allowed values, for the docs."""
        return self.metavar


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parsed(Text):
    """Text that `parse` accepts, stored as text. `parse` raises ValueError with "must be …"."""

    parse: Callable[[str], object]

    def convert(self, value: object) -> str:
        """Check the text; a TOML file may contain a number."""
        text = str(value)
        self.parse(text)
        return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice(Text):
    """One of several words."""

    choices: tuple[str, ...]

    def convert(self, value: object) -> str:
        """Check that the value is one of the choices."""
        if value not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}")
        return str(value)

    @property
    def allowed(self) -> str:
        """The choices."""
        return ", ".join(self.choices)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Switch(Text):
    """True or false."""

    def convert(self, value: object) -> bool:
        """Check that the value is a bool."""
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
        return value

    @property
    def allowed(self) -> str:
        """Both values."""
        return "true, false"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WholeNumber(Text):
    """A whole number from `minimum` to `maximum`, both inclusive."""

    minimum: int
    maximum: int | None = None

    def convert(self, value: object) -> int:
        """Check the type and the range."""
        if type(value) is not int or value < self.minimum or (self.maximum is not None and value > self.maximum):
            raise ValueError(f"must be a {self.allowed}")
        return value

    @property
    def allowed(self) -> str:
        """The range."""
        return f"whole number from {self.minimum}" + ("" if self.maximum is None else f" to {self.maximum}")


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a recipe.

    Attributes:
        name: in Python and TOML.
        declaration: its help text and allowed values.
        default: `dataclasses.MISSING` if the field is required.
    """

    name: str
    declaration: Text
    default: Any

    @property
    def option(self) -> str:
        """The command-line option."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_required(self) -> bool:
        """Whether the recipe needs a value from the model or from the user."""
        return self.default is dataclasses.MISSING

    def convert(self, value: object) -> Any:
        """Convert a value given in Python, TOML or as an option.

        Raises:
            RecipeError: the value is not allowed.
        """
        if value is None and self.default is None:
            return None
        try:
            return self.declaration.convert(value)
        except ValueError as error:
            raise RecipeError(f"invalid {self.name} {value!r}: {error}") from None


class FieldGroup:
    """Base of the dataclasses that make up a recipe: converts and checks every field on construction.

    Raises:
        RecipeError: a value is not allowed.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __post_init__(self) -> None:
        for name, field in fields_of(type(self)).items():
            object.__setattr__(self, name, field.convert(getattr(self, name)))
        self._check_combination()

    def _check_combination(self) -> None:
        """Reject values that are allowed on their own, but not together."""


def fields_of(group: type[FieldGroup]) -> dict[str, Field]:
    """Return the declared fields of a group by name, in the order of declaration."""
    hints = get_type_hints(group, include_extras=True)
    return {
        field.name: Field(field.name, hints[field.name].__metadata__[0], field.default)
        for field in dataclasses.fields(group)
    }


def listed(names: Iterable[str]) -> str:
    """Join names as in "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
