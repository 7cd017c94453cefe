"""The folder that a job on Ray writes to: nothing of others is touched, and what can't be gone on from is one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from savedmodel_bakery.client.bulk.parquet import write_rows
from savedmodel_bakery.serving.bulk import cli
from savedmodel_bakery.serving.bulk.parts import part_name, read_parts

PART = f"{part_name('0123456789abcdef' * 2, 7)}-0.parquet"
ROW = {"image": "a", "ok": False, "top": [], "model": "pets", "signature": "top_k"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], object]:
    """Start a job that has a photo to do, and no model; exit code, and what it said."""
    monkeypatch.chdir(tmp_path)
    Path("photo.jpg").touch()
    Path("rows").mkdir()

    def run() -> object:
        with pytest.raises(SystemExit) as caught:
            cli.main(["photo.jpg", "--model_name=pets", "--model_base_path=none", "--out=rows"])
        return caught.value.code, capsys.readouterr().err

    return run


def test_a_part_that_was_cut_off_is_removed_and_a_whole_one_counts(tmp_path: Path) -> None:
    write_rows([ROW], tmp_path / PART)
    (tmp_path / PART.replace("-0.", "-1.")).write_bytes((tmp_path / PART).read_bytes()[:-9])
    done = read_parts(tmp_path, model="pets")
    assert (frozenset("a"), 1) == (done.keys, done.failed)
    assert [PART] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: path.write_bytes(b"PAR1 not finished"), "{} is no part of such a job; name another folder"),
        (
            lambda path: pq.write_table(pa.table({"image": ["a"], "content": [b""]}), path),
            "{} is no part of such a job; name another folder",
        ),
        (
            lambda path: write_rows([{**ROW, "model": "cars"}], path),
            '{} holds rows of model "cars"; "pets" is asked for; name another folder',
        ),
        (lambda path: path.mkdir(), "{} cannot be read: "),
    ],
    ids=["unfinished", "of other columns", "of another model", "unreadable"],
)
def test_what_is_no_part_is_refused_and_stays(
    run: Callable[[], tuple[int, str]], make: Callable[[Path], object], error: str
) -> None:
    path = Path("rows/photos.parquet")
    make(path)
    before = path.is_dir() or path.read_bytes()
    code, said = run()
    assert (1, 1) == (code, said.count("\n"))
    assert error.format(path) in said
    assert before == (path.is_dir() or path.read_bytes())


def test_two_jobs_do_not_write_to_one_folder(run: Callable[[], tuple[int, str]]) -> None:
    lock = "import fcntl; f = open('rows/.lock', 'ab'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert (1, "INVALID_ARGUMENT: rows is being written by another job\n") == run()
        other.communicate(b"\n")
    assert "Could not find base path" in run()[1]
