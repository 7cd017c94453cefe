"""The pages that train networks, or measure, print what they show; `make test-slow` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import differences, pages_of

PAGES = pages_of("slow")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_what_its_commands_print(clone: Path, tmp_path: Path, name: str) -> None:
    different = differences(PAGES[name], clone, tmp_path)
    assert not different, different
