"""The command line has an option for every field of a recipe, with its default, and converts it like a recipe file."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from savedmodel_bakery.exporter.commands import options
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.recipe.fields import REQUIRED


@click.command()
@options.recipe
@click.pass_context
def show(ctx: click.Context, **values: Any) -> None:
    ctx.exit(0 if values.keys() == Recipe.FIELDS.keys() else 3)


def parse(*arguments: str) -> dict[str, Any]:
    return show.make_context("show", list(arguments)).params


def test_every_field_has_an_option_with_its_help_and_default() -> None:
    text = " ".join(CliRunner().invoke(show, ["--help"], terminal_width=1000).output.split())
    for field in Recipe.FIELDS.values():
        assert field.option in text
        assert " ".join(field.help_text.split()) in text
        if field.default is not REQUIRED:
            default = field.when_unset if field.default is None else field.default
            assert f"{field.help_text} [default: {default}]" in text


def test_unused_options_are_none() -> None:
    assert dict.fromkeys(Recipe.FIELDS) == parse()


@pytest.mark.parametrize(
    ("arguments", "name", "expected"),
    [
        (["--size", "240x320"], "size", (240, 320)),
        (["--no-antialias"], "antialias", False),
        (["--antialias"], "antialias", True),
        (["--channels", "bgr"], "channels", "BGR"),
        (["--top-k", "3"], "top_k", 3),
        (["--crop", "7/8"], "crop", "7/8"),
    ],
)
def test_values_are_converted(arguments: list[str], name: str, expected: object) -> None:
    assert expected == parse(*arguments)[name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--crop", "2"],
            "invalid crop '2': must be none, letterbox, letterbox:down, ",
        ),
        (["--batch-max", "5000"], "5000 is not in the range 0<=x<=4096"),
        (["--resize", "cubic"], "'cubic' is not one of 'bilinear', 'bicubic'"),
    ],
)
def test_invalid_values_are_usage_errors(arguments: list[str], message: str) -> None:
    with pytest.raises(click.BadParameter) as rejected:
        parse(*arguments)
    assert message in rejected.value.format_message()
