"""Runs click commands in this process, as the programs do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import click
import pytest

from savedmodel_bakery.exits import run_command


class Ended(NamedTuple):
    """The exit code of a command, and what it printed."""

    code: int
    stdout: str
    stderr: str


def run(command: click.Command, arguments: Sequence[object], capsys: pytest.CaptureFixture[str]) -> Ended:
    """Run a command."""
    capsys.readouterr()
    code = run_command(command, list(map(str, arguments)), prog_name="program")
    return Ended(code, *capsys.readouterr())
