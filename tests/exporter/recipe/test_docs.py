"""docs/reference/recipe.md lists every field of a recipe, and is up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from savedmodel_bakery.exporter.recipe import Recipe


def test_the_page_is_what_the_script_writes(clone: Path, tmp_path: Path) -> None:
    made = tmp_path / "recipe.md"
    subprocess.run([sys.executable, clone / "tools" / "make_recipe_docs.py", made], check=True)
    assert made.read_text() == (clone / "docs" / "reference" / "recipe.md").read_text()


def test_every_field_has_a_row(clone: Path) -> None:
    page = (clone / "docs" / "reference" / "recipe.md").read_text()
    assert len(Recipe.FIELDS) == page.count("\n| `")
    for field in Recipe.FIELDS.values():
        assert f"\n| `{field.name}` | `{field.option}` | " in page
