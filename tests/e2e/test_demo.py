"""The script that `make demo` runs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("arguments", "expected"), [([], (8500, 8501)), (["1", "2"], (1, 2))], ids=["default", "given"]
)
def test_the_demo_has_default_ports(arguments: list[str], expected: tuple[int, int], clone: Path) -> None:
    assert expected == runpy.run_path(str(clone / "tools" / "demo.py"))["preferred_ports"](arguments)
