"""README's commands print what it shows, run from top to bottom in a fresh clone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pages import differences


@pytest.fixture
def fresh_clone(clone: Path, tmp_path: Path) -> Path:
    """A copy of the committed files, with the environment of the clone and no saved model."""
    fresh = tmp_path / "savedmodel-bakery"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=clone, check=True, capture_output=True, text=True).stdout
    for name in listed.strip("\0").split("\0"):
        (fresh / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(clone / name, fresh / name, follow_symlinks=False)
        os.utime(fresh / name, (0, 0), follow_symlinks=False)  # older than the environment, so that make leaves it
    (fresh / ".venv").symlink_to(clone / ".venv")
    return fresh


@pytest.mark.timeout(900)
def test_the_readme_shows_what_its_commands_print(clone: Path, fresh_clone: Path, flowers: Path) -> None:
    different = differences((clone / "README.md").read_text(), fresh_clone, fresh_clone, flowers=flowers)
    assert not different, different


def test_the_readme_is_short(clone: Path) -> None:
    assert len((clone / "README.md").read_text().splitlines()) <= 150
