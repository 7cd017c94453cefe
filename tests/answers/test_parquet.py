"""Photos in Parquet files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from bulk_files import write_parquet, write_photos

from savedmodel_bakery.answers.photo_files import open_file

Read = Callable[..., dict[str, str]]
CUT_OFF = "the archive cannot be read to its end"


def test_a_parquet_file_contains_photos_or_their_paths(read: Read, tmp_path: Path) -> None:
    write_photos(tmp_path, horse=b"horse")
    write_parquet(str(tmp_path / "bytes.parquet"), image=["one", "two"], content=[b"cat", None])
    write_parquet(str(tmp_path / "paths.parquet"), image=["horse.jpg"])
    contents = read("bytes.parquet", "paths.parquet")
    assert {"bytes.parquet/one": "cat", "bytes.parquet/two": "", "horse.jpg": "horse"} == contents


def test_equal_names_in_two_parquet_files_are_two_photos(read: Read, tmp_path: Path) -> None:
    write_parquet(str(tmp_path / "1.parquet"), image=["0", "1"], content=[b"cat", b"horse"])
    write_parquet(str(tmp_path / "2.parquet"), image=["0", "1"], content=[b"horse", b"cat"])
    expected = {"1.parquet/0": "cat", "1.parquet/1": "horse", "2.parquet/0": "horse", "2.parquet/1": "cat"}
    assert expected == read("1.parquet", "2.parquet")


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
    read: Read, tmp_path: Path, key_type: pa.DataType, content_type: pa.DataType
) -> None:
    image, content = pa.array(["one", "two"], pa.string()).cast(key_type), pa.array([b"cat", b"horse"], content_type)
    write_parquet(str(tmp_path / "a.parquet"), image=image, content=content)
    assert {"a.parquet/one": "cat", "a.parquet/two": "horse"} == read("a.parquet")


def test_in_a_folder_such_a_parquet_file_has_a_row_and_no_other_file_is_read(read: Read, tmp_path: Path) -> None:
    write_photos(tmp_path, secret=b"horse")
    (tmp_path / "a").mkdir()
    write_parquet(str(tmp_path / "a" / "b.parquet"), image=["one"], content=["secret.jpg"])
    reason = 'column "content" has type string; supported are binary and large_binary'
    assert {"a/b.parquet": f"{CUT_OFF}: {reason}"} == read("a")


def test_other_columns_are_inputs(read: Read, tmp_path: Path) -> None:  # noqa: ARG001 - in its folder
    write_photos(tmp_path, horse=b"horse")
    write_parquet(str(tmp_path / "paths.parquet"), image=["horse.jpg"], tab=[[1.0, 2.0]])
    write_parquet(str(tmp_path / "bytes.parquet"), image=["a"], content=[b"cat"], tab=[[3.0]])
    columns = [
        photo.columns
        for name in ("paths.parquet", "bytes.parquet")
        for photo in open_file(Path(name), lambda _: True, all_files=False)
    ]
    assert [{"tab": [1.0, 2.0]}, {"tab": [3.0]}] == columns
