"""docs/reference/python.md describes every public name."""

from __future__ import annotations

import re
from pathlib import Path

import savedmodel_bakery


def test_the_page_describes_every_public_name(clone: Path) -> None:
    page = (clone / "docs" / "reference" / "python.md").read_text()
    described = set(re.findall(r"^::: savedmodel_bakery\.\S+\.(\w+)$", page, re.MULTILINE))
    assert set() == set(savedmodel_bakery.__all__) - {"__version__"} - described
    assert "`savedmodel_bakery.__version__`" in page
