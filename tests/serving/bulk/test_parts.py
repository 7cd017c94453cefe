"""A job on Ray never changes files that it did not write, and reports an unusable folder in one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from savedmodel_bakery.answers.parquet import write_rows
from savedmodel_bakery.command import main
from savedmodel_bakery.serving.bulk.parts import part_name, read_parts

PART = f"{part_name('0123456789abcdef' * 2, 7)}-0.parquet"
ROW = {"image": "a", "ok": False, "top": [], "model": "pets", "signature": "top_k"}
TAGS = {"image": "b", "ok": True, "tags": [], "model": "pets", "signature": "serving_default"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], object]:
    """Return a function that starts a job with one photo and no model, and returns its exit code and stderr."""
    monkeypatch.chdir(tmp_path)
    Path("photo.jpg").touch()
    Path("rows").mkdir()

    def run() -> object:
        with pytest.raises(SystemExit) as caught:
            main(["bulk", "photo.jpg", "--engine=ray", "--model-name=pets", "--model-base-path=none", "--out=rows"])
        return caught.value.code, capsys.readouterr().err

    return run


def test_an_unfinished_part_is_removed_and_a_complete_one_counts(tmp_path: Path) -> None:
    write_rows([ROW], tmp_path / PART, "classify")
    (tmp_path / PART.replace("-0.", "-1.")).write_bytes((tmp_path / PART).read_bytes()[:-9])
    done = read_parts(tmp_path, model="pets")
    assert (frozenset("a"), 1, "classify") == (done.keys, done.failed, done.task)
    assert [PART] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: path.write_bytes(b"PAR1 not finished"), "{} was not written by this command; use another folder"),
        (
            lambda path: pq.write_table(pa.table({"image": ["a"], "content": [b""]}), path),
            "{} was not written by this command; use another folder",
        ),
        (
            lambda path: write_rows([{**ROW, "model": "cars"}], path, "classify"),
            '{} contains rows of model "cars", not "pets"; use another folder',
        ),
        (
            lambda path: (
                write_rows([TAGS], path, "multilabel") or write_rows([ROW], path.parent / "a.parquet", "classify")
            ),
            "rows contains rows of task classify, not multilabel; use another folder",
        ),
        (lambda path: path.mkdir(), "cannot read {}: "),
    ],
    ids=["unfinished", "other columns", "another model", "another task", "unreadable"],
)
def test_other_files_are_rejected_and_kept(
    run: Callable[[], tuple[int, str]], make: Callable[[Path], object], error: str
) -> None:
    path = Path("rows/photos.parquet")
    make(path)
    before = path.is_dir() or path.read_bytes()
    code, stderr = run()
    assert (1, 1) == (code, stderr.count("\n"))
    assert error.format(path) in stderr
    assert before == (path.is_dir() or path.read_bytes())


def test_a_folder_in_use_by_another_job_is_rejected(run: Callable[[], tuple[int, str]]) -> None:
    lock = "import fcntl; f = open('rows/.lock', 'ab'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert (1, "error: INVALID_ARGUMENT: rows is being written by another job\n") == run()
        other.communicate(b"\n")
    assert "Could not find base path" in run()[1]
