"""Every page of the documentation prints what it shows, from an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import differences, steps

DOCS = Path(__file__).parent.parent.parent / "docs"
NEEDS_DEBIAN = "<!-- needs: debian -->"  # run by tests/system/test_pages.py


def names() -> list[str]:
    """Return the pages that show commands and need Python alone."""
    pages = {str(path.relative_to(DOCS)): path.read_text() for path in sorted(DOCS.rglob("*.md"))}
    return [name for name, page in pages.items() if NEEDS_DEBIAN not in page and steps(page)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", names())
def test_the_page_shows_what_its_commands_print(clone: Path, tmp_path: Path, name: str) -> None:
    different = differences((DOCS / name).read_text(), clone, tmp_path)
    assert not different, different
