"""Many photos from everywhere become rows, once each, whatever is wrong with them or with the server."""

from __future__ import annotations

import contextlib
import csv
import errno
import gc
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from savedmodel_bakery.client import Client
from savedmodel_bakery.client.bulk import archives, photos
from savedmodel_bakery.client.bulk.classify import classify_photos
from savedmodel_bakery.client.bulk.job import Job
from savedmodel_bakery.client.bulk.photos import Photo, UnreadablePhotoError, unreadable_photo
from savedmodel_bakery.client.bulk.sources import open_file
from savedmodel_bakery.client.commands.cli import main
from savedmodel_bakery.client.results import Prediction
from savedmodel_bakery.wire.status import Code, StatusError

Run = Callable[..., tuple[int, str]]
CUT_OFF = "the archive cannot be read to its end"


@pytest.fixture
def run(peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `classify` in a folder of its own; exit code, and the last line on stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, stdin: bytes = b"") -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main(["classify", "--port", str(peer.grpc_port), *map(str, arguments)])
        printed = capsys.readouterr()
        assert "" == printed.out
        return caught.value.code or 0, printed.err.splitlines()[-1]

    return run


def rows(path: str = "rows.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def labels(path: str = "rows.jsonl") -> dict[str, str]:
    """Image to label, or to the reason why it has none."""
    found = {row["image"]: row["label"] if row["ok"] else row["error"] for row in rows(path)}
    assert len(found) == len(rows(path))
    return found


def write_photos(folder: Path, **contents: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / f"{name}.jpg").write_bytes(content)
    return folder


def write_tar(path: str, mode: Any, **contents: bytes) -> None:
    with tarfile.open(path, mode) as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"./in/{name}.jpg")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_zip(path: str, **contents: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("in")
        for name, content in contents.items():
            archive.writestr(f"in/{name}.jpg", content)


def write_parquet(path: str, **columns: Any) -> None:
    pq.write_table(pa.table(columns), path)


def test_a_folder_is_walked_but_for_hidden_names(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "a" / "b", horse=b"horse")
    write_photos(tmp_path / "a", cat=b"cat")
    write_photos(tmp_path / "a" / ".hidden", cat=b"cat")
    (tmp_path / "a" / ".DS_Store").touch()
    assert 0 == run("a/", "--out", "rows.jsonl")[0]
    assert {"a/b/horse.jpg": "sorrel", "a/cat.jpg": "tabby"} == labels()


def test_globs_and_photos_are_read_and_what_is_named_twice_is_one_row(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "a" / "b", horse=b"horse", cat=b"cat")
    assert 0 == run("a/**/*.jpg", "a/b/h*.jpg", "a/b/cat.jpg", "./a", "--out", "rows.jsonl")[0]
    assert {"a/b/horse.jpg": "sorrel", "a/b/cat.jpg": "tabby"} == labels()


@pytest.mark.parametrize(("name", "mode"), [("a.tar", "w"), ("a.tar.gz", "w:gz"), ("A.TGZ", "w:gz"), ("a.txz", "w:xz")])
def test_tar_archives_are_opened(run: Run, name: str, mode: str, tmp_path: Path) -> None:
    write_tar(str(tmp_path / name), mode, horse=b"horse", cat=b"cat")
    assert 0 == run(name, "--out", "rows.jsonl")[0]
    assert {f"{name}/in/horse.jpg": "sorrel", f"{name}/in/cat.jpg": "tabby"} == labels()


def test_zip_archives_are_opened_in_folders_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write_zip(str(tmp_path / "a" / "b.zip"), horse=b"horse", cat=b"cat")
    assert 0 == run("a", "--out", "rows.jsonl")[0]
    assert {"a/b.zip/in/horse.jpg": "sorrel", "a/b.zip/in/cat.jpg": "tabby"} == labels()


def test_a_list_on_stdin_names_files_and_folders(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "a", horse=b"horse", cat=b"cat")
    write_photos(tmp_path, **{"b c": b"cat"})
    assert 4 == run("-", "--out", "rows.jsonl", stdin=b"a\r\n\nb c.jpg\nnone.jpg\n")[0]
    missing = "cannot be read: No such file or directory"
    assert {"a/horse.jpg": "sorrel", "a/cat.jpg": "tabby", "b c.jpg": "tabby", "none.jpg": missing} == labels()


def test_parquet_holds_photos_or_their_paths(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path, horse=b"horse")
    write_parquet(str(tmp_path / "bytes.parquet"), image=["one", "two"], content=[b"cat", None])
    write_parquet(str(tmp_path / "paths.parquet"), image=["horse.jpg"])
    assert 4 == run("bytes.parquet", "paths.parquet", "--out", "rows.jsonl")[0]
    assert {
        "bytes.parquet/one": "tabby",
        "bytes.parquet/two": "no image",
        "horse.jpg": "sorrel",
    } == labels()


def test_equal_names_in_two_parquet_files_are_two_photos(run: Run, tmp_path: Path) -> None:
    write_parquet(str(tmp_path / "1.parquet"), image=["0", "1"], content=[b"cat", b"horse"])
    write_parquet(str(tmp_path / "2.parquet"), image=["0", "1"], content=[b"horse", b"cat"])
    assert 0 == run("1.parquet", "2.parquet", "1.parquet", "--out", "rows.jsonl")[0]
    expected = {"1.parquet/0": "tabby", "1.parquet/1": "sorrel", "2.parquet/0": "sorrel", "2.parquet/1": "tabby"}
    assert expected == labels()


def test_photos_of_one_key_have_each_their_own_answer() -> None:
    """Answers belong to positions: Ray may put a photo that two inputs name into one batch."""
    same_key = [Photo("a", 1, lambda: b"1"), unreadable_photo("a", "torn"), Photo("a", 1, lambda: b"2")]

    def predict(images: list[bytes]) -> Prediction:
        return Prediction({"output_0": np.array(images, object)}, "m", 1, "s")

    assert ["1", None, "2"] == [row["label"] for row in classify_photos(same_key, predict, model="m", signature="s")]


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
    assert {"a.parquet/one": "tabby", "a.parquet/two": "sorrel"} == labels()


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
        (
            [7],
            [b"cat"],
            'column "image" has type int64; supported are string, large_string and dictionary',
        ),
    ],
    ids=["paths", "numbers", "structs", "keys"],
)
def test_parquet_of_other_types_is_refused_and_no_file_is_read_for_it(
    run: Run, tmp_path: Path, image: list[Any], content: list[Any], reason: str
) -> None:
    write_photos(tmp_path, secret=b"horse")
    write_parquet(str(tmp_path / "a.parquet"), image=image, content=content)
    assert 4 == run("a.parquet", "--out", "rows.jsonl")[0]
    assert {"a.parquet": f"{CUT_OFF}: {reason}"} == labels()


def test_names_that_are_no_utf_8_tell_photos_apart(run: Run, tmp_path: Path) -> None:
    for name in (b"\xfe.jpg", b"\xff.jpg"):
        (tmp_path / os.fsdecode(name)).write_bytes(b"cat")
    assert 0 == run("*.jpg", "--out", "rows.jsonl")[0]
    assert {"\\xfe.jpg": "tabby", "\\xff.jpg": "tabby"} == labels()


def test_every_format_holds_the_same_rows(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "a", horse=b"horse", odd=b"?")
    for name in ("rows.jsonl", "rows.csv", "rows.parquet"):
        assert 4 == run("a", "--out", name)[0]
    named = {"model": "efficientnet_lite0", "signature": "top_k"}
    top = [("sorrel", 0.75, 339), ("zebra", 0.125, 340), ("ox", 0.0625, 345)]
    expected = [
        {
            "image": "a/horse.jpg", "ok": True, "label": "sorrel", "error": None,
            "top": [dict(zip(("label", "score", "class_id"), row, strict=True)) for row in top], "version": 3, **named,
        },
        {"image": "a/odd.jpg", "ok": False, "label": None, "error": "no image", "top": [], "version": 3, **named},
    ]  # fmt: skip

    def by_image(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(found, key=lambda row: str(row["image"]))

    assert expected == by_image(rows())
    assert expected == by_image(pq.read_table("rows.parquet").to_pylist())
    with Path("rows.csv").open(newline="") as file:
        found = by_image(list(csv.DictReader(file)))
    best = {"score": "0.75", "class_id": "339"}
    assert {
        "image": "a/horse.jpg",
        "ok": "True",
        "label": "sorrel",
        **best,
        "error": "",
        "version": "3",
        **named,
    } == found[0]
    assert ("a/odd.jpg", "False", "", "", "no image") == tuple(
        found[1][n] for n in ("image", "ok", "label", "score", "error")
    )
    assert {"a", "rows.jsonl", "rows.csv", "rows.parquet"} == {path.name for path in Path().iterdir()}


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
            {"a.tar/in/horse.jpg": "sorrel",
                "a.tar": f"{CUT_OFF}: no end mark at byte 1024"},
            id="tar cut between members",
        ),
        pytest.param(
            lambda: write_tar("a.tar", "w", horse=b"horse", cat=b"cat"), lambda: spoil("a.tar", 1024 + 150),
            {"a.tar/in/horse.jpg": "sorrel",
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
                "a.zip/in/cat.jpg": "tabby"},
            id="zip with a damaged member",
        ),
        pytest.param(
            lambda: Path("a.zip").write_bytes(b"none"), lambda: None,
            {"a.zip": f"{CUT_OFF}: File is not a zip file"},
            id="no zip",
        ),
        pytest.param(
            lambda: write_parquet("a.parquet", url=["one"]), lambda: None,
            {"a.parquet": f'{CUT_OFF}: the columns are url; exactly one must be "image", the name of the photo'},
            id="parquet with other columns",
        ),
    ],
)  # fmt: skip
def test_what_a_damaged_archive_still_holds_is_classified(
    run: Run, make: Callable[[], Any], harm: Callable[[], Any], expected: dict[str, str]
) -> None:
    make()
    harm()
    assert 4 == run("*a*", "--out", "rows.jsonl")[0]
    assert expected == labels()


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip", "a.parquet"])
def test_no_damage_to_an_archive_is_an_exception(tmp_path: Path, name: str) -> None:
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
        for photo in open_file(whole, lambda _: True):
            with contextlib.suppress(UnreadablePhotoError):
                assert isinstance(photo.read(), bytes)


def test_what_cannot_be_a_photo_is_not_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos, "MAX_PHOTO_BYTES", 4)
    monkeypatch.setattr(archives, "MAX_PHOTO_BYTES", 4)
    write_photos(tmp_path / "a", horse=b"horse", cat=b"cat")
    write_zip("a/b.zip", horse=b"horse")
    os.mkfifo("a/fifo")
    assert 4 == run("a", "-", "--out", "rows.jsonl", stdin=b"a/fifo\n")[0]
    large = "too large: 5 bytes; the limit is 4"
    fifo = "cannot be read: not a file, or a folder that cannot be listed"
    assert {"a/cat.jpg": "tabby", "a/horse.jpg": large, "a/b.zip/in/horse.jpg": large, "a/fifo": fifo} == labels()


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet"])
def test_it_goes_on_where_it_was(run: Run, tmp_path: Path, peer: Any, name: str) -> None:
    """Whole lines stay as they are, and what was being written is asked about again."""
    write_photos(tmp_path / "a", **{f"p{number}": b"cat" for number in range(5)})
    run("a", "--out", "whole.jsonl")
    lines = Path("whole.jsonl").read_text().splitlines(keepends=True)
    kept = [line.replace("tabby", "kept") for line in lines[:3]]
    journal = Path("rows.jsonl" if name == "rows.jsonl" else f"{name}.jsonl")
    journal.write_text("".join(kept) + lines[3][:-9])
    before = peer.requests
    assert 0 == run("a", "--batch-size", 1, "--out", name)[0]
    assert 2 == len([image for image, label in found_in(name) if label == "tabby"])
    assert sorted(json.loads(line)["image"] for line in lines) == sorted(image for image, _ in found_in(name))
    # The check and its metadata, and two photos, each by a client that fetches the metadata too.
    assert peer.requests - before <= 6


def found_in(name: str) -> list[tuple[str, str]]:
    if name.endswith(".parquet"):
        table = pq.read_table(name).to_pylist()
    elif name.endswith(".csv"):
        table = list(csv.DictReader(Path(name).read_text().splitlines()))
    else:
        table = rows(name)
    return [(row["image"], row["label"]) for row in table]


FORMATS = pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet"])
NOTHING = "is neither a file, a folder nor a glob that matches a file"
NO_SERVER = ("-t", "127.0.0.1:1")


def test_a_folder_without_photos_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert (0, "nothing to do: no photo in empty") == run("empty", *NO_SERVER, "--out", "rows.jsonl")


@FORMATS
def test_done_again_nothing_is_asked_about(run: Run, tmp_path: Path, name: str) -> None:
    """Not even a server, and the exit code is that of the finished job."""
    write_photos(tmp_path / "a", horse=b"horse")
    assert 0 == run("a", "--out", name)[0]
    before = Path(name).read_bytes()
    assert (0, "nothing to do: all 1 photos have a row") == run("a", *NO_SERVER, "--out", name)
    assert before == Path(name).read_bytes()
    write_photos(tmp_path / "b", odd=b"?")
    assert 4 == run("a", "b", "--out", name)[0]
    before = Path(name).read_bytes()
    assert 4 == run("a", "b", *NO_SERVER, "--out", name)[0]
    assert before == Path(name).read_bytes()
    assert {"a", "b", name} == {path.name for path in tmp_path.iterdir()}


@FORMATS
def test_failed_photos_are_asked_about_again_where_that_is_wanted(
    run: Run, tmp_path: Path, peer: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write_photos(tmp_path / "a", horse=b"horse", cat=b"cat", odd=b"?")
    with monkeypatch.context() as patch:
        refuse(patch, peer, lambda _, images: Code.INTERNAL if b"horse" in images else None)
        assert 4 == run("a", "--out", name)[0]
    none = "" if name == "rows.csv" else None
    assert {"a/cat.jpg": "tabby", "a/horse.jpg": none, "a/odd.jpg": none} == dict(found_in(name))
    assert (4, "1 of 3 photos could not be classified; their rows have the reason") == run(
        "a", "--retry-failed", "--out", name
    )
    assert [("a/cat.jpg", "tabby"), ("a/horse.jpg", "sorrel"), ("a/odd.jpg", none)] == sorted(found_in(name))
    assert {"a", name} == {path.name for path in tmp_path.iterdir()}


@FORMATS
def test_a_full_disk_costs_no_row_when_failed_ones_are_asked_about_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write_photos(tmp_path / "a", horse=b"horse", odd=b"?")
    assert 4 == run("a", "--out", name)[0]
    before = {path.name: path.read_bytes() for path in tmp_path.glob("rows*")}

    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    assert (2, f"{name} cannot be written: No space left on device") == run("a", "--retry-failed", "--out", name)
    assert before == {path.name: path.read_bytes() for path in tmp_path.glob("*rows*")}


@FORMATS
def test_what_a_job_writes_is_not_its_input(run: Run, tmp_path: Path, name: str) -> None:
    write_photos(tmp_path, cat=b"cat")
    (tmp_path / "link").symlink_to(tmp_path)
    assert 0 == run(".", "*", "link/*.*", "--out", f"link/{name}")[0]
    write_photos(tmp_path, horse=b"horse")
    assert 0 == run(".", "*", "--out", name)[0]
    assert {"cat.jpg", "horse.jpg", "link/cat.jpg"} == {image for image, _ in found_in(name)}


@pytest.mark.parametrize(
    ("content", "arguments", "error"),
    [
        (
            None,
            ["none", "--out", "r.jsonl"],
            f"not found: none {NOTHING}",
        ),
        (
            None,
            ["*.png", "--out", "r.jsonl"],
            f"not found: *.png {NOTHING}",
        ),
        (None, ["a", "--out", "r.txt"], "invalid file name r.txt: must end with .jsonl, .csv, .parquet"),
        (None, ["a", "--out", "no/r.jsonl"], "no/r.jsonl cannot be written: No such file or directory"),
        (
            b"x\n",
            ["a", "--out", "r.csv"],
            "r.csv does not contain the rows of a bulk job; pass another file",
        ),
        (
            b"x\n",
            ["a", "--out", "r.parquet"],
            "r.parquet does not contain the rows of a bulk job; pass another file",
        ),
        (
            b"image,ok,label,score,class_id,error,model,version,signature\nb,True,ox,0.5,7,,pets,1,top_k\n",
            ["a", "--out", "r.csv"],
            'row 1 of r.csv is from model "pets", not "efficientnet_lite0"; pass another file',
        ),
        (
            b"image,ok,label,score,class_id,error,model,version,signature\nb,True,ox,0.5,seven,,pets,1,top_k\n",
            ["a", "--out", "r.csv"],
            "r.csv does not contain the rows of a bulk job; pass another file",
        ),
        (b"notes", ["a", "--out", "r.jsonl"], "line 1 of r.jsonl is not a row of a bulk job; pass another file"),
        (b"{}\n", ["a", "--out", "r.jsonl"], "line 1 of r.jsonl is not a row of a bulk job; pass another file"),
        (
            b'{"image": "b", "ok": true, "model": "pets", "top": []}\n',
            ["a", "--out", "r.jsonl"],
            'line 1 of r.jsonl is from model "pets", not "efficientnet_lite0"; pass another file',
        ),
    ],
    ids=[
        *("nothing there", "no match", "format", "no folder", "other csv", "other parquet", "csv of another model"),
        *("csv that was changed", "other file", "other rows", "other model"),
    ],
)
def test_wrong_usage_is_one_line_and_changes_nothing(
    run: Run, tmp_path: Path, content: bytes | None, arguments: list[str], error: str
) -> None:
    write_photos(tmp_path / "a", horse=b"horse")
    out = Path(arguments[-1])
    if content is not None:
        out.write_bytes(content)
    assert (2, error) == run(*arguments)
    assert content is None or content == out.read_bytes()
    assert {"a"} | ({out.name} if content is not None else set()) == {path.name for path in tmp_path.iterdir()}


def test_two_jobs_do_not_write_the_same_rows(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "a", horse=b"horse")
    lock = "import fcntl; f = open('rows.jsonl', 'ab'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert (2, "rows.jsonl is being written by another job") == run("a", "--out", "rows.jsonl")
        other.communicate(b"\n")


def test_without_pyarrow_parquet_names_its_extra(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    write_photos(tmp_path / "a", horse=b"horse")
    error = "Parquet needs pyarrow, which is not installed; try: pip install 'savedmodel-bakery[parquet]'"
    assert (2, error) == run("a", "--out", "rows.parquet")


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (["-m", "pets"], 1, "NOT_FOUND: Servable not found for request: Latest(pets)"),
        (["-n", "none"], 1, 'FAILED_PRECONDITION: signature "none" not found in model "efficientnet_lite0"'),
        (["-m", "half_plus_two"], 1, 'FAILED_PRECONDITION: signature "top_k" not found in model "half_plus_two"'),
        (["-t", "127.0.0.1:1"], 3, "cannot connect to 127.0.0.1:1 over gRPC; is a model server running there?"),
    ],
    ids=["model", "signature", "model of another kind", "no server"],
)
def test_what_no_photo_changes_is_told_before_any_is_asked_about(
    run: Run, tmp_path: Path, options: list[str], code: int, error: str
) -> None:
    write_photos(tmp_path / "a", horse=b"horse")
    found = run("a", *options, "--out", "rows.jsonl")
    assert (code, error) == (found[0], found[1][: len(error)])
    assert [] == rows()


def refuse(monkeypatch: pytest.MonkeyPatch, peer: Any, refusals: Callable[[int, list[bytes]], Code | None]) -> None:
    """Let the peer refuse runs, by their number and images."""
    model, count = sys.modules[type(peer).__module__].MODELS["efficientnet_lite0"], 0
    answer = model.run

    def run(signature: str, inputs: dict[str, Any]) -> Any:
        nonlocal count
        count += 1
        code = refusals(count, inputs["image"].tolist())
        if code is not None:
            raise StatusError(code, "not this one")
        return answer(signature, inputs)

    monkeypatch.setattr(model, "run", run)


@pytest.mark.parametrize(
    ("code", "refusals"),
    [(Code.UNAVAILABLE, 6), (Code.RESOURCE_EXHAUSTED, 3), (Code.CANCELLED, 2), (Code.DEADLINE_EXCEEDED, 3)],
    ids=["away for longer than a channel asks", "busy", "closing", "hanging"],
)
def test_a_server_that_is_away_or_busy_is_asked_again(
    run: Run, tmp_path: Path, peer: Any, monkeypatch: pytest.MonkeyPatch, code: Code, refusals: int
) -> None:
    refuse(monkeypatch, peer, lambda count, _: code if 1 < count <= 1 + refusals else None)
    write_photos(tmp_path / "a", **{f"p{number}": b"cat" for number in range(6)})
    assert 0 == run("a", "--jobs", 1, "--batch-size", 4, "--out", "rows.jsonl")[0]
    assert {f"a/p{number}.jpg": "tabby" for number in range(6)} == labels()


def test_a_photo_that_spoils_its_batch_is_a_row_and_the_others_are_classified(
    run: Run, tmp_path: Path, peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, peer, lambda _, images: Code.INTERNAL if b"evil" in images else None)
    write_photos(tmp_path / "a", horse=b"horse", evil=b"evil", cat=b"cat")
    assert 4 == run("a", "--out", "rows.jsonl")[0]
    assert {"a/horse.jpg": "sorrel", "a/evil.jpg": "INTERNAL: not this one", "a/cat.jpg": "tabby"} == labels()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.NOT_FOUND, "NOT_FOUND: not this one"),
        (Code.UNAVAILABLE, "UNAVAILABLE: not this one"),
        (Code.DEADLINE_EXCEEDED, "not this one"),
    ],
    ids=["model gone", "server gone", "server hangs"],
)
def test_what_ends_it_midway_leaves_rows_to_go_on_from(
    run: Run, tmp_path: Path, peer: Any, monkeypatch: pytest.MonkeyPatch, code: Code, error: str
) -> None:
    write_photos(tmp_path / "a", **{f"p{number}": b"cat" for number in range(40)})
    with monkeypatch.context() as patch:
        refuse(patch, peer, lambda count, _: code if count > 20 else None)
        outcome = run("a", "--jobs", 1, "--batch-size", 1, "--retry_second", 0, "--out", "rows.jsonl")
    assert (1, error) == outcome
    assert 0 < len(labels()) < 40
    assert 0 == run("a", "--out", "rows.jsonl")[0]
    assert {f"a/p{number}.jpg": "tabby" for number in range(40)} == labels()


def test_photos_that_are_done_are_not_kept(peer: Any) -> None:
    """Of 100 photos of 1 MB a dozen are held at once: those that are asked about or read, and their requests."""
    generated = (Photo(f"{at}.jpg", 1 << 20, lambda: bytes(1 << 20)) for at in range(100))
    with Client(port=peer.grpc_port) as client:
        job = Job([client, client], model="efficientnet_lite0", signature="top_k", batch_size=1, retry_s=60)
        gc.disable()
        tracemalloc.start()
        try:
            assert 100 == sum(map(len, job.run(generated)))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert peak < 30 << 20


def test_photos_are_not_read_far_ahead(peer: Any) -> None:
    """When the first rows come, no more photos were taken than may be under way."""
    taken = 0

    def endless() -> Any:
        nonlocal taken
        while True:
            taken += 1
            yield Photo(str(taken), 3, lambda: b"cat")

    with Client(port=peer.grpc_port) as one, Client(port=peer.grpc_port) as two:
        found = Job([one, two], model="efficientnet_lite0", signature="top_k", batch_size=3, retry_s=0).run(endless())
        assert ["tabby"] * 3 == [row["label"] for row in next(found)]
        found.close()
    assert taken <= 2 * 2 * 3 + 1


def test_progress_and_the_end_tell_how_many_are_done_and_failed(
    peer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "a", horse=b"horse", cat=b"cat", odd=b"?")
    with pytest.raises(SystemExit):
        main(["classify", "--port", str(peer.grpc_port), "a", "--out", "rows.jsonl"])
    *_, bar, end = capsys.readouterr().err.splitlines()
    assert "3/3 [" in bar
    assert "photos/s, failed=1]" in bar
    assert "1 of 3 photos could not be classified; their rows have the reason" == end
