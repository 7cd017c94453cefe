"""Which photos a job takes."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from bulk_files import read_labels, write_photos

Run = Callable[..., tuple[int, str]]

NO_SERVER = ("-t", "127.0.0.1:1")


def test_a_photo_that_is_named_twice_has_one_row(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "a" / "b", horse=b"horse", cat=b"cat")
    assert 0 == run("a/**/*.jpg", "a/b/h*.jpg", "a/b/cat.jpg", "./a", "--out", "rows.jsonl")[0]
    assert {"a/b/horse.jpg": "sorrel", "a/b/cat.jpg": "tabby"} == read_labels()


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
