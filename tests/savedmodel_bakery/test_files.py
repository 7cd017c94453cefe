"""Files that people write are small; others end neither the memory nor the patience."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe import read_recipe_file
from savedmodel_bakery.files import MAX_BYTES, parse_toml
from savedmodel_bakery.label_files import read_label_file
from savedmodel_bakery.serving.options.config_files import TextFormatError, read_config_file
from savedmodel_bakery.wire.status import StatusError

TOO_LARGE = "the file has more than 16777216 bytes, the limit for such files"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file of 10 GB, which is not on the disk."""
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 10_000_000_000)
    return path


def test_larger_files_are_not_read(large: Path) -> None:
    with pytest.raises(RecipeError, match=f"cannot read the recipe file .*{TOO_LARGE}"):
        read_recipe_file(large)
    with pytest.raises(OSError, match=TOO_LARGE):
        read_label_file(large)
    with pytest.raises(StatusError, match=TOO_LARGE):
        read_config_file(large)


def test_files_of_the_largest_size_are_read(tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("x" * (MAX_BYTES - 1) + "\n")
    assert 1 == len(read_label_file(labels))


@pytest.mark.parametrize("part", ["a", '"a"', "a "])
def test_keys_of_many_parts_are_rejected(part: str) -> None:
    assert parse_toml(".".join([part] * 60) + " = 1")
    for key in (".".join([part] * 60_000), "x = {" + ".".join([part] * 60_000)):
        with pytest.raises(ValueError, match="it has a key of more than 64 parts"):
            parse_toml(f"{key} = 1")


def test_an_error_quotes_the_beginning_of_a_long_line(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("x" * 10_000_000)
    with pytest.raises(TextFormatError) as caught:
        read_config_file(config)
    assert 900 < len(caught.value.reason) < 1200
