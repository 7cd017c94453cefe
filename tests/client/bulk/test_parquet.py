"""Parquet files that a job refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bulk_files import write_parquet, write_photos

from savedmodel_bakery.extras import install_command

Run = Callable[..., tuple[int, str]]


@pytest.mark.parametrize(
    ("image", "content", "reason"),
    [
        (["one"], ["secret.jpg"], 'column "content" has type string; supported are binary and large_binary'),
        (["one"], [7], 'column "content" has type int64; supported are binary and large_binary'),
        (
            ["one"],
            [{"bytes": b"cat", "path": "a.jpg"}],
            'column "content" has type struct<bytes: binary, path: string>; supported are binary and large_binary',
        ),
        ([7], [b"cat"], 'column "image" has type int64; supported are string, large_string and dictionary'),
    ],
    ids=["paths", "numbers", "structs", "keys"],
)
@pytest.mark.parametrize("path", ["a.parquet", "*.parquet"])
def test_a_parquet_file_with_columns_of_other_types_is_wrong_usage(
    run: Run, tmp_path: Path, path: str, image: list[Any], content: list[Any], reason: str
) -> None:
    write_parquet(str(tmp_path / "a.parquet"), image=image, content=content)
    assert (2, f"a.parquet contains no photos: {reason}") == run(path, "--out", "rows.jsonl")
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_parquet_file_without_the_column_image_is_wrong_usage(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path, horse=b"horse")
    write_parquet(str(tmp_path / "a.parquet"), photo=["horse.jpg"], label=["sorrel"])
    reason = 'the columns are photo, label; exactly one must be "image", the name of the photo'
    assert (2, f"a.parquet contains no photos: {reason}") == run("horse.jpg", "a.parquet", "--out", "rows.jsonl")


def test_without_pyarrow_parquet_names_its_extra(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    write_photos(tmp_path / "a", horse=b"horse")
    error = f"Parquet needs pyarrow, which is not installed; try: {install_command('parquet')}"
    assert (1, error) == run("a", "--out", "rows.parquet")
