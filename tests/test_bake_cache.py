"""Bakes that tests share are made once, and again when something that they depend on has changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from bake_cache import bake_once, digest


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with one folder of sources, and a file outside it."""
    (tmp_path / "exporter" / "image").mkdir(parents=True)
    (tmp_path / "exporter" / "bake.py").write_text("a = 1\n")
    (tmp_path / "exporter" / "image" / "pixels.py").write_text("b = 2\n")
    (tmp_path / "networks.py").write_text("c = 3\n")
    return tmp_path


class Baker:
    """Bakes a file with the number of the bake."""

    def __init__(self, clone: Path) -> None:
        self._clone, self._bakes = clone, 0

    def _make(self, folder: Path) -> None:
        self._bakes += 1
        (folder / "number").write_text(str(self._bakes))

    def bake(self, name: str = "tiny") -> int:
        folder = bake_once(
            name, self._make, self._clone / "networks.py", clone=self._clone, sources=digest([self._clone / "exporter"])
        )
        return int((folder / "number").read_text())


def test_a_bake_is_kept_by_name(clone: Path) -> None:
    baker = Baker(clone)
    assert [1, 1, 2, 1] == [baker.bake(), baker.bake(), baker.bake("other"), baker.bake()]


@pytest.mark.parametrize("file", ["exporter/bake.py", "exporter/image/pixels.py", "networks.py"])
def test_a_changed_file_is_never_served_an_old_bake(clone: Path, file: str) -> None:
    baker = Baker(clone)
    baker.bake()
    (clone / file).write_text("a = 2\n")
    assert [2, 2] == [baker.bake(), baker.bake()]
    assert 1 == len([path for path in (clone / ".cache/bakes/tiny").iterdir() if path.is_dir()])


def test_new_removed_and_renamed_files_are_changes(clone: Path) -> None:
    baker = Baker(clone)
    assert 1 == baker.bake()
    (clone / "exporter" / "empty.py").touch()
    assert 2 == baker.bake()
    (clone / "exporter" / "empty.py").rename(clone / "exporter" / "image" / "empty.py")
    assert 3 == baker.bake()
    (clone / "exporter" / "image" / "empty.py").unlink()
    assert 4 == baker.bake()


def test_what_python_compiled_is_no_change(clone: Path) -> None:
    baker = Baker(clone)
    baker.bake()
    (clone / "exporter" / "__pycache__").mkdir()
    (clone / "exporter" / "__pycache__" / "bake.pyc").touch()
    assert 1 == baker.bake()


def test_a_bake_that_failed_is_made_again(clone: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        bake_once("tiny", fail, clone=clone)
    folder = bake_once("tiny", lambda folder: (folder / "whole").touch(), clone=clone)
    assert ["whole"] == [path.name for path in folder.iterdir()]
