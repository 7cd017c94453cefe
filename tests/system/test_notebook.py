"""The notebook shows what its cells print, and the page of the site shows the notebook."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.system

# Differences of a few bits between processors, and which photo is the farthest.
_NUMBERS = re.compile(r"\d+\.\d+(?:e-\d+)?|\b\d+e-\d+|farthest \S+:")


@pytest.fixture
def make_notebook(clone: Path) -> dict[str, Any]:
    return runpy.run_path(str(clone / "tools" / "make_notebook.py"))


def shown(notebook: Any) -> Iterator[tuple[str, list[str]]]:
    """Return the text of each output, and the types that it has."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text": output.get("text")})
            text = data.get("text/plain", data.get("text"))
            yield _NUMBERS.sub("…", re.sub(r"\s+", " ", text)), sorted(data)


@pytest.mark.timeout(1800)
def test_the_notebook_shows_what_its_cells_print(make_notebook: dict[str, Any]) -> None:
    import nbformat

    stored = nbformat.read(make_notebook["NOTEBOOK"], as_version=4)
    assert [*shown(stored)] == [*shown(make_notebook["execute"](make_notebook["NOTEBOOK"]))]


def test_the_page_is_what_the_script_writes(make_notebook: dict[str, Any]) -> None:
    import nbformat

    stored = nbformat.read(make_notebook["NOTEBOOK"], as_version=4)
    assert make_notebook["render"](stored) == make_notebook["PAGE"].read_text()
