"""Which photos a command line names, whatever the files are."""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from bulk_files import read_labels, write_photos, write_zip

from savedmodel_bakery.answers.photos import archives, photo

Run = Callable[..., tuple[int, str]]

NO_SERVER = ("-t", "127.0.0.1:1")


def test_a_folder_is_walked_except_for_hidden_files(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "a" / "b", horse=b"horse")
    write_photos(tmp_path / "a", cat=b"cat")
    write_photos(tmp_path / "a" / ".hidden", cat=b"cat")
    (tmp_path / "a" / ".DS_Store").touch()
    assert 0 == run("a/", "--out", "rows.jsonl")[0]
    assert {"a/b/horse.jpg": "sorrel", "a/cat.jpg": "tabby"} == read_labels()


def test_a_photo_that_is_named_twice_has_one_row(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "a" / "b", horse=b"horse", cat=b"cat")
    assert 0 == run("a/**/*.jpg", "a/b/h*.jpg", "a/b/cat.jpg", "./a", "--out", "rows.jsonl")[0]
    assert {"a/b/horse.jpg": "sorrel", "a/b/cat.jpg": "tabby"} == read_labels()


def test_a_list_on_stdin_names_files_and_folders(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "a", horse=b"horse", cat=b"cat")
    write_photos(tmp_path, **{"b c": b"cat"})
    assert 4 == run("-", "--out", "rows.jsonl", stdin=b"a\r\n\nb c.jpg\nnone.jpg\n")[0]
    missing = "cannot be read: No such file or directory"
    assert {"a/horse.jpg": "sorrel", "a/cat.jpg": "tabby", "b c.jpg": "tabby", "none.jpg": missing} == read_labels()


def test_file_names_that_are_not_utf_8_have_different_keys(run: Run, tmp_path: Path) -> None:
    for name in (b"\xfe.jpg", b"\xff.jpg"):
        (tmp_path / os.fsdecode(name)).write_bytes(b"cat")
    assert 0 == run("*.jpg", "--out", "rows.jsonl")[0]
    assert {"\\xfe.jpg": "tabby", "\\xff.jpg": "tabby"} == read_labels()


def test_oversized_files_and_special_files_are_not_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(photo, "MAX_PHOTO_BYTES", 4)
    monkeypatch.setattr(archives, "MAX_PHOTO_BYTES", 4)
    write_photos(tmp_path / "a", horse=b"horse", cat=b"cat")
    write_zip("a/b.zip", horse=b"horse")
    os.mkfifo("a/fifo")
    assert 4 == run("a", "-", "--out", "rows.jsonl", stdin=b"a/fifo\n")[0]
    large = "too large: 5 bytes; the limit is 4"
    fifo = "cannot be read: not a file, or a folder that cannot be listed"
    assert {"a/cat.jpg": "tabby", "a/horse.jpg": large, "a/b.zip/in/horse.jpg": large, "a/fifo": fifo} == read_labels()


def test_folders_and_archives_are_searched_for_images(run: Run, tmp_path: Path) -> None:
    """Files that are named on the command line, by a glob or on stdin are taken whatever their suffix."""
    write_photos(tmp_path / "a", horse=b"horse")
    (tmp_path / "a" / "PHOTO.JPEG").write_bytes(b"cat")
    for name in ("a/notes.txt", "a/cat", "named.dat", "matched.bin", "listed"):
        (tmp_path / name).write_bytes(b"cat")
    with zipfile.ZipFile("a/b.zip", "w") as archive:
        archive.writestr("cat.png", b"cat")
        archive.writestr("cat.txt", b"cat")
    with tarfile.open("c.tar", "w") as tar:
        tar.add("a/horse.jpg")
        tar.add("a/notes.txt")
    arguments = ("a", "c.tar", "named.dat", "*.bin", "-")
    images = {"a/horse.jpg": "sorrel", "a/PHOTO.JPEG": "tabby", "a/b.zip/cat.png": "tabby"}
    images |= {"c.tar/a/horse.jpg": "sorrel", "named.dat": "tabby", "matched.bin": "tabby", "listed": "tabby"}
    assert 0 == run(*arguments, "--out", "rows.jsonl", stdin=b"listed\n")[0]
    assert images == read_labels()
    others = dict.fromkeys(("a/notes.txt", "a/cat", "a/b.zip/cat.txt", "c.tar/a/notes.txt"), "tabby")
    assert 0 == run(*arguments, "--all-files", "--out", "all.jsonl", stdin=b"listed\n")[0]
    assert images | others == read_labels("all.jsonl")


def test_a_folder_without_photos_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert (0, "nothing to do: no photo in empty; --all-files takes files without an image suffix too") == run(
        "empty", *NO_SERVER, "--out", "rows.jsonl"
    )
