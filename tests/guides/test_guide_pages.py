"""The pages on other frameworks print what they show; `make test-guides` makes the frameworks' environments."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import differences, environments, pages_of

PAGES = pages_of("guides")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_what_its_commands_print(clone: Path, tmp_path: Path, name: str) -> None:
    for environment in environments(PAGES[name]):
        made = clone / ".cache" / "guides" / environment
        assert (made / ".installed").is_file(), f"{made} is missing: run make test-guides"
        (tmp_path / environment).symlink_to(made)
    different = differences(PAGES[name], clone, tmp_path)
    assert not different, different
