"""The files that a job writes, and how it continues from them."""

from __future__ import annotations

import csv
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bulk_files import read_image_labels, read_rows, write_photos

from savedmodel_bakery.wire.status import Code

Run = Callable[..., tuple[int, str]]
NOTHING = "is neither a file, a folder nor a glob that matches a file"
NO_SERVER = ("-t", "127.0.0.1:1")


def test_every_format_has_the_same_rows(run: Run, tmp_path: Path) -> None:
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

    def by_image(result: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(result, key=lambda row: str(row["image"]))

    assert expected == by_image(read_rows())
    assert expected == by_image(pq.read_table("rows.parquet").to_pylist())
    with Path("rows.csv").open(newline="") as file:
        result = by_image(list(csv.DictReader(file)))
    best = {"score": "0.75", "class_id": "339"}
    assert {
        "image": "a/horse.jpg",
        "ok": "True",
        "label": "sorrel",
        **best,
        "error": "",
        "version": "3",
        **named,
    } == result[0]
    assert ("a/odd.jpg", "False", "", "", "no image") == tuple(
        result[1][n] for n in ("image", "ok", "label", "score", "error")
    )
    assert {"a", "rows.jsonl", "rows.csv", "rows.parquet"} == {path.name for path in Path().iterdir()}


FORMATS = pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet"])


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet"])
def test_a_job_continues_where_it_stopped(run: Run, tmp_path: Path, peer: Any, name: str) -> None:
    """Complete lines are kept, and the photo of an incomplete line is classified again."""
    write_photos(tmp_path / "a", **{f"p{number}": b"cat" for number in range(5)})
    run("a", "--out", "whole.jsonl")
    lines = Path("whole.jsonl").read_text().splitlines(keepends=True)
    kept = [line.replace("tabby", "kept") for line in lines[:3]]
    journal = Path("rows.jsonl" if name == "rows.jsonl" else f"{name}.jsonl")
    journal.write_text("".join(kept) + lines[3][:-9])
    before = peer.requests
    assert 0 == run("a", "--batch-size", 1, "--out", name)[0]
    assert 2 == len([image for image, label in read_image_labels(name) if label == "tabby"])
    assert sorted(json.loads(line)["image"] for line in lines) == sorted(image for image, _ in read_image_labels(name))
    # The check and its metadata, and two photos, each with a client that fetches the metadata too.
    assert peer.requests - before <= 7


@FORMATS
def test_a_finished_job_that_runs_again_sends_nothing(run: Run, tmp_path: Path, name: str) -> None:
    """It needs no server, and its exit code is that of the finished job."""
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
def test_retry_failed_classifies_failed_photos_again(run: Run, tmp_path: Path, refuse_runs: Any, name: str) -> None:
    write_photos(tmp_path / "a", horse=b"horse", cat=b"cat", odd=b"?")
    refuse_runs(lambda _, images: Code.INTERNAL if b"horse" in images else None)
    assert 4 == run("a", "--out", name)[0]
    refuse_runs(lambda _, __: None)
    none = "" if name == "rows.csv" else None
    assert {"a/cat.jpg": "tabby", "a/horse.jpg": none, "a/odd.jpg": none} == dict(read_image_labels(name))
    assert (4, "1 of 3 photos failed; their rows have the reason") == run("a", "--retry-failed", "--out", name)
    assert [("a/cat.jpg", "tabby"), ("a/horse.jpg", "sorrel"), ("a/odd.jpg", none)] == sorted(read_image_labels(name))
    assert {"a", name} == {path.name for path in tmp_path.iterdir()}


@FORMATS
def test_a_full_disk_loses_no_row_with_retry_failed(
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
def test_the_results_of_a_job_are_not_its_input(run: Run, tmp_path: Path, name: str) -> None:
    write_photos(tmp_path, cat=b"cat")
    (tmp_path / "link").symlink_to(tmp_path)
    assert 0 == run(".", "*", "link/*.*", "--out", f"link/{name}")[0]
    write_photos(tmp_path, horse=b"horse")
    assert 0 == run(".", "*", "--out", name)[0]
    assert {"cat.jpg", "horse.jpg", "link/cat.jpg"} == {image for image, _ in read_image_labels(name)}


@pytest.mark.parametrize(
    ("content", "arguments", "error"),
    [
        (None, ["none", "--out", "r.jsonl"], f"not found: none {NOTHING}"),
        (None, ["*.png", "--out", "r.jsonl"], f"not found: *.png {NOTHING}"),
        (None, ["a", "--out", "r.txt"], "invalid file name r.txt: must end with .jsonl, .csv or .parquet"),
        (None, ["a", "--out", "no/r.jsonl"], "no/r.jsonl cannot be written: No such file or directory"),
        (b"x\n", ["a", "--out", "r.csv"], "r.csv does not contain the rows of a bulk job; pass another file"),
        (b"x\n", ["a", "--out", "r.parquet"], "r.parquet does not contain the rows of a bulk job; pass another file"),
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
            b'{"image": "b", "ok": true, "label": "ox", "error": null, "top": [], "model": "pets", "version": 1, '
            b'"signature": "top_k"}\n',
            ["a", "--out", "r.jsonl"],
            'line 1 of r.jsonl is from model "pets", not "efficientnet_lite0"; pass another file',
        ),
    ],
    ids=[
        *("nothing there", "no match", "format", "no folder", "other csv", "other parquet", "csv of another model"),
        *("csv that was changed", "other file", "other rows", "other model"),
    ],
)
def test_wrong_usage_is_one_line_and_changes_no_file(
    run: Run, tmp_path: Path, content: bytes | None, arguments: list[str], error: str
) -> None:
    write_photos(tmp_path / "a", horse=b"horse")
    out = Path(arguments[-1])
    if content is not None:
        out.write_bytes(content)
    assert (2, error) == run(*arguments)
    assert content is None or content == out.read_bytes()
    assert {"a"} | ({out.name} if content is not None else set()) == {path.name for path in tmp_path.iterdir()}


def test_two_jobs_cannot_write_the_same_file(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "a", horse=b"horse")
    lock = "import fcntl; f = open('rows.jsonl', 'ab'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert (2, "rows.jsonl is being written by another job") == run("a", "--out", "rows.jsonl")
        other.communicate(b"\n")
