"""Errors of a bake name arguments in Python, and options on the command line."""

from __future__ import annotations

import click
import pytest

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exits import run_command

TEXTS = {
    "a.keras needs --labels and --source-output: pass them or state them in a --recipe file": (
        "a.keras needs labels and source_output: pass them or state them in a recipe"
    ),
    "; --parity-html shows it, --no-parity publishes it anyway": (
        "; parity_html shows it, require_parity=False publishes it anyway"
    ),
    "allow more with --parity-atol, or pass --precision float32": "allow more with atol, or pass precision float32",
    "file not found: my--model.keras": "file not found: my--model.keras",
}


@pytest.mark.parametrize("text", TEXTS)
def test_an_error_names_what_its_reader_can_pass(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command
    def fail() -> None:
        raise RecipeError(text)

    assert 1 == run_command(fail, [])
    assert f"error: {text}\n" == capsys.readouterr().err
    assert TEXTS[text] == str(RecipeError(text))
