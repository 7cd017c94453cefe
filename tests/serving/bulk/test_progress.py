"""The progress of a job on Ray follows its parts, and its page has it."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from waiting import wait_until

from savedmodel_bakery.answers.parquet import write_rows
from savedmodel_bakery.serving.bulk import progress
from savedmodel_bakery.serving.bulk.parts import part_name
from savedmodel_bakery.serving.telemetry.registry import REGISTRY

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
        if isinstance(collector, progress.JobProgress):
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
    progress.publish(out, files, {"before", f"{files[1]}/a.jpg"}, all_files=False)
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
    assert set() == progress.find_new(files[1], {str(files[1])}, all_files=False)
    everything = {f"{files[1]}/{name}" for name in ("a.jpg", "b.jpg", "notes.txt")}
    assert everything == progress.find_new(files[1], set(), all_files=True)
