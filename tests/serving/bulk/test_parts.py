"""A job on Ray never changes files that it did not write, and reports an unusable folder in one line."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client import generate_latest
from waiting import wait_until

from savedmodel_bakery.answers.parquet import write_rows
from savedmodel_bakery.command import main
from savedmodel_bakery.serving.bulk.parts import JobProgress, find_new, part_name, publish_progress, read_parts
from savedmodel_bakery.serving.telemetry.metrics import REGISTRY

PART = f"{part_name('0123456789abcdef' * 2, 7)}-0.parquet"
ROW = {"image": "a", "ok": False, "top": [], "model": "pets", "signature": "top_k"}
TAGS = {"image": "b", "ok": True, "tags": [], "model": "pets", "signature": "serving_default"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], object]:
    """Return a function that starts a job with one photo and no model, and returns its exit code and stderr."""
    monkeypatch.chdir(tmp_path)
    Path("photo.jpg").touch()
    Path("rows").mkdir()
    Path("model/1").mkdir(parents=True)

    def run() -> object:
        with pytest.raises(SystemExit) as caught:
            main(["bulk", "photo.jpg", "--engine=ray", "--model-name=pets", "--model-base-path=model", "--out=rows"])
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
    assert "model/1/saved_model.pb: No such file" in run()[1]


ROWS = [{"image": name, "ok": name != "c", "top": [], "model": "m", "signature": "top_k"} for name in "abc"]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A photo, an archive with two photos and another file, and a damaged archive."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("a.jpg", "b.jpg", "notes.txt"):
        (folder / name).write_bytes(b"x")
    with tarfile.open(folder / "photos.tar", "w") as archive:
        for name in ("a.jpg", "b.jpg", "notes.txt"):
            archive.add(folder / name, name)
    (folder / "none.tar").write_bytes(b"none")
    return [folder / "a.jpg", folder / "photos.tar", folder / "none.tar"]


@pytest.fixture(autouse=True)
def no_job() -> Iterator[None]:
    """End the job that a test publishes."""
    yield
    for collector in list(REGISTRY._collector_to_names):
        if isinstance(collector, JobProgress):
            REGISTRY.unregister(collector)


def page() -> dict[str, float]:
    """Return the values of the metrics of the job."""
    lines = [line for line in generate_latest(REGISTRY).decode().splitlines() if line.startswith("bakery_bulk_")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_without_a_job_the_metrics_have_no_value() -> None:
    assert {} == page()


def test_complete_parts_and_their_rows_are_counted(tmp_path: Path, files: list[Path]) -> None:
    out = tmp_path / "rows"
    out.mkdir()
    first, second = (out / f"{part_name('0123456789abcdef' * 2, number)}-0.parquet" for number in (1, 2))
    write_rows(ROWS, first, "classify")
    second.write_bytes(first.read_bytes()[:-9])
    publish_progress(out, files, {"before", f"{files[1]}/a.jpg"}, all_files=False)
    wait_until(lambda: "bakery_bulk_expected_photos" in page())
    counted = {
        'bakery_bulk_photos_total{outcome="ok"}': 2,
        'bakery_bulk_photos_total{outcome="failed"}': 1,
        "bakery_bulk_parts_total": 1,
        "bakery_bulk_expected_photos": 5,  # two have a row; others are a.jpg, b.jpg of the archive, and none.tar
    }
    assert counted == page()
    write_rows(ROWS[:1], second, "classify")
    assert {**counted, 'bakery_bulk_photos_total{outcome="ok"}': 3, "bakery_bulk_parts_total": 2} == page()


def test_other_members_of_an_archive_with_a_row_have_one_too(files: list[Path]) -> None:
    assert set() == find_new(files[1], {str(files[1])}, all_files=False)
    everything = {f"{files[1]}/{name}" for name in ("a.jpg", "b.jpg", "notes.txt")}
    assert everything == find_new(files[1], set(), all_files=True)
