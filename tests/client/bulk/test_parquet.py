"""Photos in Parquet files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bulk_files import read_labels, write_parquet, write_photos

from savedmodel_bakery.extras import install_command

Run = Callable[..., tuple[int, str]]
CUT_OFF = "the archive cannot be read to its end"


def test_a_parquet_file_contains_photos_or_their_paths(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path, horse=b"horse")
    write_parquet(str(tmp_path / "bytes.parquet"), image=["one", "two"], content=[b"cat", None])
    write_parquet(str(tmp_path / "paths.parquet"), image=["horse.jpg"])
    assert 4 == run("bytes.parquet", "paths.parquet", "--out", "rows.jsonl")[0]
    assert {"bytes.parquet/one": "tabby", "bytes.parquet/two": "no image", "horse.jpg": "sorrel"} == read_labels()


def test_equal_names_in_two_parquet_files_are_two_photos(run: Run, tmp_path: Path) -> None:
    write_parquet(str(tmp_path / "1.parquet"), image=["0", "1"], content=[b"cat", b"horse"])
    write_parquet(str(tmp_path / "2.parquet"), image=["0", "1"], content=[b"horse", b"cat"])
    assert 0 == run("1.parquet", "2.parquet", "1.parquet", "--out", "rows.jsonl")[0]
    expected = {"1.parquet/0": "tabby", "1.parquet/1": "sorrel", "2.parquet/0": "sorrel", "2.parquet/1": "tabby"}
    assert expected == read_labels()


@pytest.mark.parametrize(
    ("key_type", "content_type"),
    [
        (pa.string(), pa.binary()),
        (pa.large_string(), pa.large_binary()),
        (pa.dictionary(pa.int32(), pa.string()), pa.binary()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.large_binary()),
    ],
    ids=str,
)
def test_parquet_of_other_writers_is_read(
    run: Run, tmp_path: Path, key_type: pa.DataType, content_type: pa.DataType
) -> None:
    image, content = pa.array(["one", "two"], pa.string()).cast(key_type), pa.array([b"cat", b"horse"], content_type)
    write_parquet(str(tmp_path / "a.parquet"), image=image, content=content)
    assert 0 == run("a.parquet", "--out", "rows.jsonl")[0]
    assert {"a.parquet/one": "tabby", "a.parquet/two": "sorrel"} == read_labels()


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


def test_in_a_folder_such_a_parquet_file_has_a_row_and_no_other_file_is_read(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path, secret=b"horse")
    (tmp_path / "a").mkdir()
    write_parquet(str(tmp_path / "a" / "b.parquet"), image=["one"], content=["secret.jpg"])
    assert 4 == run("a", "--out", "rows.jsonl")[0]
    reason = 'column "content" has type string; supported are binary and large_binary'
    assert {"a/b.parquet": f"{CUT_OFF}: {reason}"} == read_labels()


def test_without_pyarrow_parquet_names_its_extra(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    write_photos(tmp_path / "a", horse=b"horse")
    error = f"Parquet needs pyarrow, which is not installed; try: {install_command('parquet')}"
    assert (1, error) == run("a", "--out", "rows.parquet")
