"""Which photos paths name, whatever the files are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from bulk_files import write_photos, write_zip

from savedmodel_bakery.answers.photos import photo, sources

Read = Callable[..., dict[str, str]]


def test_a_folder_is_walked_except_for_hidden_files(read: Read, tmp_path: Path) -> None:
    write_photos(tmp_path / "a" / "b", horse=b"horse")
    write_photos(tmp_path / "a", cat=b"cat")
    write_photos(tmp_path / "a" / ".hidden", cat=b"cat")
    (tmp_path / "a" / ".DS_Store").touch()
    assert {"a/b/horse.jpg": "horse", "a/cat.jpg": "cat"} == read("a/")


def test_a_list_names_files_and_folders(read: Read, tmp_path: Path) -> None:
    write_photos(tmp_path / "a", horse=b"horse", cat=b"cat")
    write_photos(tmp_path, **{"b c": b"cat"})
    contents = read(listed=b"a\r\n\nb c.jpg\nnone.jpg\n")
    missing = "cannot be read: No such file or directory"
    assert {"a/horse.jpg": "horse", "a/cat.jpg": "cat", "b c.jpg": "cat", "none.jpg": missing} == contents


def test_file_names_that_are_not_utf_8_have_different_keys(read: Read, tmp_path: Path) -> None:
    for name in (b"\xfe.jpg", b"\xff.jpg"):
        (tmp_path / os.fsdecode(name)).write_bytes(b"cat")
    assert {"\\xfe.jpg": "cat", "\\xff.jpg": "cat"} == read("*.jpg")


def test_oversized_files_and_special_files_are_not_read(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(photo, "MAX_PHOTO_BYTES", 4)
    monkeypatch.setattr(sources, "MAX_PHOTO_BYTES", 4)
    write_photos(tmp_path / "a", horse=b"horse", cat=b"cat")
    write_zip("a/b.zip", horse=b"horse")
    os.mkfifo("a/fifo")
    contents = read("a", listed=b"a/fifo\n")
    large = "too large: 5 bytes; the limit is 4"
    fifo = "cannot be read: not a file, or a folder that cannot be listed"
    assert {"a/cat.jpg": "cat", "a/horse.jpg": large, "a/b.zip/in/horse.jpg": large, "a/fifo": fifo} == contents
