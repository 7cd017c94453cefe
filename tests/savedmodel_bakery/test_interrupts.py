"""Ctrl-C while a program imports its modules: one line, no traceback, exit code 130."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Runs a package as `python -m` does, and interrupts it when it is about to import a module.
INTERRUPTING = """
import os, runpy, signal, sys
package, module = sys.argv[1:3]

class Interrupt:
    @staticmethod
    def find_spec(name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.{handler})  # a background job's processes inherit that it is ignored
sys.meta_path.insert(0, Interrupt)
del sys.argv[1:3]
runpy.run_module(package, run_name="__main__", alter_sys=True)
"""
BAKE = ["bake", "--model", "efficientnet-lite0"]
IMPORTS = {
    "bakery": ("savedmodel_bakery", "click", ["--help"]),
    "bakery bake, TensorFlow": ("savedmodel_bakery", "tensorflow", BAKE),
    "bakery bake, numpy inside TensorFlow": ("savedmodel_bakery", "numpy", BAKE),
    "bakery bake, after TensorFlow": ("savedmodel_bakery", "savedmodel_bakery.exporter.sources", BAKE),
    "exporter": ("savedmodel_bakery.exporter", "click", ["--help"]),
    "client": ("savedmodel_bakery.client", "click", ["--help"]),
    "serving": ("savedmodel_bakery.serving", "savedmodel_bakery.serving.cli", ["--help"]),
}


def run(
    package: str, module: str, arguments: list[str], folder: Path, handler: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", INTERRUPTING.format(handler=handler), package, module, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("package", "module", "arguments"), IMPORTS.values(), ids=IMPORTS)
def test_an_interrupt_is_one_line(package: str, module: str, arguments: list[str], tmp_path: Path) -> None:
    ended = run(package, module, arguments, tmp_path, "default_int_handler")
    assert (130, "", "\ninterrupted\n") == (ended.returncode, ended.stdout, ended.stderr)
    assert [] == list(tmp_path.iterdir())


def test_an_ignored_interrupt_stays_ignored(tmp_path: Path) -> None:
    """As in a background job of a shell."""
    ended = run("savedmodel_bakery", "click", ["--help"], tmp_path, "SIG_IGN")
    assert (0, "") == (ended.returncode, ended.stderr)
