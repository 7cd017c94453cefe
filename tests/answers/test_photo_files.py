"""Which photos paths name, whatever the files are; and photos in tar and zip archives, also in damaged ones."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bulk_files import write_parquet, write_photos, write_tar, write_zip

from savedmodel_bakery.answers import photo, photo_files
from savedmodel_bakery.answers.photo import UnreadablePhotoError
from savedmodel_bakery.answers.photo_files import open_file

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
    monkeypatch.setattr(photo_files, "MAX_PHOTO_BYTES", 4)
    write_photos(tmp_path / "a", horse=b"horse", cat=b"cat")
    write_zip("a/b.zip", horse=b"horse")
    os.mkfifo("a/fifo")
    contents = read("a", listed=b"a/fifo\n")
    large = "too large: 5 bytes; the limit is 4"
    fifo = "cannot be read: not a file, or a folder that cannot be listed"
    assert {"a/cat.jpg": "cat", "a/horse.jpg": large, "a/b.zip/in/horse.jpg": large, "a/fifo": fifo} == contents


Read = Callable[..., dict[str, str]]
CUT_OFF = "the archive cannot be read to its end"


@pytest.mark.parametrize(("name", "mode"), [("a.tar", "w"), ("a.tar.gz", "w:gz"), ("A.TGZ", "w:gz"), ("a.txz", "w:xz")])
def test_tar_archives_are_opened(read: Read, name: str, mode: str, tmp_path: Path) -> None:
    write_tar(str(tmp_path / name), mode, horse=b"horse", cat=b"cat")
    assert {f"{name}/in/horse.jpg": "horse", f"{name}/in/cat.jpg": "cat"} == read(name)


def test_zip_archives_in_folders_are_opened(read: Read, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write_zip(str(tmp_path / "a" / "b.zip"), horse=b"horse", cat=b"cat")
    assert {"a/b.zip/in/horse.jpg": "horse", "a/b.zip/in/cat.jpg": "cat"} == read("a")


def cut(path: str, n_bytes: int) -> None:
    os.truncate(path, n_bytes)


def spoil(path: str, at: int) -> None:
    with Path(path).open("r+b") as file:
        file.seek(at)
        file.write(b"\xff\xff")


@pytest.mark.parametrize(
    ("make", "harm", "expected"),
    [
        pytest.param(
            lambda: write_tar("a.tar", "w", horse=b"horse", cat=b"cat"), lambda: cut("a.tar", 1024),
            {"a.tar/in/horse.jpg": "horse",
                "a.tar": f"{CUT_OFF}: no end mark at byte 1024"},
            id="tar cut between members",
        ),
        pytest.param(
            lambda: write_tar("a.tar", "w", horse=b"horse", cat=b"cat"), lambda: spoil("a.tar", 1024 + 150),
            {"a.tar/in/horse.jpg": "horse",
                "a.tar": f"{CUT_OFF}: no end mark at byte 1024"},
            id="tar with a damaged header",
        ),
        pytest.param(
            lambda: write_tar("a.tgz", "w:gz", horse=os.urandom(90_000), cat=b"cat"), lambda: cut("a.tgz", 60_000),
            {"a.tgz": f"{CUT_OFF}: "
                "Compressed file ended before the end-of-stream marker was reached"},
            id="tar.gz cut off",
        ),
        pytest.param(
            lambda: write_zip("a.zip", horse=b"horse", cat=b"cat"), lambda: spoil("a.zip", 76),
            {"a.zip/in/horse.jpg": "cannot be unpacked: Bad CRC-32 for file 'in/horse.jpg'",
                "a.zip/in/cat.jpg": "cat"},
            id="zip with a damaged member",
        ),
        pytest.param(
            lambda: Path("a.zip").write_bytes(b"none"), lambda: None,
            {"a.zip": f"{CUT_OFF}: File is not a zip file"},
            id="no zip",
        ),
    ],
)  # fmt: skip
def test_the_readable_photos_of_a_damaged_archive_are_read(
    read: Read, make: Callable[[], Any], harm: Callable[[], Any], expected: dict[str, str]
) -> None:
    make()
    harm()
    assert expected == read("*a*")


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip", "a.parquet"])
def test_a_damaged_archive_never_raises_an_exception(tmp_path: Path, name: str) -> None:
    whole = tmp_path / name
    if name == "a.zip":
        write_zip(str(whole), horse=b"horse", cat=b"cat")
    elif name == "a.parquet":
        write_parquet(str(whole), image=["horse", "cat"], content=[b"horse", b"cat"])
    else:
        write_tar(str(whole), "w:gz" if name == "a.tar.gz" else "w", horse=b"horse", cat=b"cat")
    content, chosen = whole.read_bytes(), random.Random(0)
    for _ in range(300):
        harmed = bytearray(content[: chosen.choice((len(content), chosen.randrange(len(content))))])
        for _ in range(chosen.choice((1, 3, 20)) if harmed else 0):
            harmed[chosen.randrange(len(harmed))] = chosen.choice((0, 255, chosen.randrange(256)))
        whole.write_bytes(harmed)
        for found in open_file(whole, lambda _: True, all_files=False):
            with contextlib.suppress(UnreadablePhotoError):
                assert isinstance(found.read(), bytes)


def test_a_csv_file_names_photos_and_the_inputs_beside_them(read: Read, tmp_path: Path) -> None:
    write_photos(tmp_path, horse=b"horse")
    Path("list.csv").write_text('image,tab\nhorse.jpg,"[1, 2]"\n', "utf-8-sig")
    [photo] = open_file(Path("list.csv"), lambda _: True, all_files=False)
    assert ("horse.jpg", b"horse", {"tab": "[1, 2]"}) == (photo.key, photo.read(), photo.columns)
    Path("bad.csv").write_text("photo\nhorse.jpg\n")
    assert "it must have a header with image" in read("bad.csv")["bad.csv"]
    Path("short.csv").write_text("image,tab\nhorse.jpg\n")
    assert "as many cells in each row" in read("short.csv")["short.csv"]
