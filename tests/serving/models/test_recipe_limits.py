"""The server learns from a version's recipe how many images it reads at one time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from savedmodel_bakery.serving.models.loading import LoadOptions, load
from savedmodel_bakery.serving.models.servable import OutputSize
from savedmodel_bakery.wire import version_folder


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("max_pixels = 5000\nrows_per_run = 8\n", (5000, 8)),
        ("max_pixels = 5000\nrows_per_run = 8\nbatch_max = 5\n", (5000, 10)),
        ("max_pixels = 5000\n", (None, 0)),  # baked when all images of a request were decoded at once
        ("max_pixels = inf\nrows_per_run = 8\n", (None, 0)),
        ("not TOML", (None, 0)),
        (None, (None, 0)),
    ],
)
def test_limits(half_plus_two: Path, tmp_path: Path, recipe: str | None, expected: tuple[int | None, int]) -> None:
    version = tmp_path / "1"
    shutil.copytree(half_plus_two / "1", version)
    if recipe is not None:
        (version / version_folder.RECIPE).parent.mkdir(exist_ok=True)
        (version / version_folder.RECIPE).write_text(recipe)
    servable = load("m", 1, version, LoadOptions())
    assert expected == (servable.max_pixels, servable.rows_per_run)
    assert OutputSize(per_row=4) in servable.output_sizes.values()
    servable.close()


def test_a_recipe_that_is_no_file_is_not_read(half_plus_two: Path, tmp_path: Path) -> None:
    """A reader of a pipe would wait for ever."""
    version = tmp_path / "1"
    shutil.copytree(half_plus_two / "1", version)
    (version / version_folder.RECIPE).parent.mkdir(exist_ok=True)
    os.mkfifo(version / version_folder.RECIPE)
    servable = load("m", 1, version, LoadOptions())
    assert servable.max_pixels is None
    servable.close()
