"""docs/reference/commands.md is the help of the commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_committed_page_is_what_the_script_makes(clone: Path, tmp_path: Path) -> None:
    made = tmp_path / "page"
    subprocess.run([sys.executable, clone / "tools" / "make_command_docs.py", made], check=True)
    assert made.read_text() == (clone / "docs" / "reference" / "commands.md").read_text()
