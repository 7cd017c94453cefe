"""The rows of each task, in each format."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import canned_models
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulk_files import read_rows, write_photos

from savedmodel_bakery.answers.parquet import SCHEMAS
from savedmodel_bakery.answers.rows import COLUMNS
from savedmodel_bakery.answers.tasks import TASKS

Run = Callable[..., tuple[int, str]]

MODELS = pytest.mark.parametrize("model", canned_models.CELLS)


def expected_rows(model: str) -> list[dict[str, Any]]:
    good, bad = canned_models.CELLS[model]
    named = {"model": model, "version": 3, "signature": "serving_default"}
    return [
        {"image": "a/bad.jpg", "ok": False, "error": "no image", **bad, **named},
        {"image": "a/horse.jpg", "ok": True, "error": None, **good, **named},
    ]


def read_result(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file in any format, by image; those of CSV with cells that were parsed."""
    if name.endswith(".parquet"):
        rows = pq.read_table(name).to_pylist(maps_as_pydicts="strict")
    elif name.endswith(".csv"):
        with Path(name).open(newline="") as file:
            rows = [dict(row) for row in csv.DictReader(file)]
        for row in rows:
            for column in row.keys() - {"image", "error", "model", "signature", "ok"}:
                row[column] = json.loads(row[column] or "null")
            row |= {"ok": row["ok"] == "True", "error": row["error"] or None}
    else:
        rows = read_rows(name)
    for row in rows:
        if isinstance(row.get("heads"), str):  # in Parquet
            row["heads"] = json.loads(row["heads"])
        if isinstance(row.get("map_png"), dict):
            row["map_png"] = __import__("base64").b64decode(row["map_png"]["b64"])
    return sorted(rows, key=lambda row: str(row["image"]))


def test_every_task_has_columns_and_a_schema() -> None:
    names = {task.name for task in TASKS}
    assert names == COLUMNS.keys() == SCHEMAS.keys()


@MODELS
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet"])
def test_the_rows_have_the_columns_of_the_models_task(run: Run, tmp_path: Path, model: str, name: str) -> None:
    write_photos(tmp_path / "a", horse=b"horse", bad=b"bad")
    assert 4 == run("a", "-m", model, "--out", name)[0]
    assert expected_rows(model) == read_result(name)


@MODELS
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet"])
def test_a_finished_job_continues_with_new_photos(run: Run, tmp_path: Path, model: str, name: str) -> None:
    write_photos(tmp_path / "a", bad=b"bad")
    assert 4 == run("a", "-m", model, "--out", name)[0]
    write_photos(tmp_path / "a", horse=b"horse")
    assert 4 == run("a", "-m", model, "--out", name)[0]
    assert expected_rows(model) == read_result(name)


def test_an_embedders_parquet_file_has_a_list_column(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path / "a", horse=b"horse")
    assert 0 == run("a", "-m", "embedder", "--out", "vectors.parquet")[0]
    assert pa.list_(pa.float32()) == pq.read_schema("vectors.parquet").field("embedding").type


def test_a_photo_that_cannot_be_read_has_a_row_of_the_task(run: Run, tmp_path: Path) -> None:
    write_photos(tmp_path, horse=b"horse")
    assert 4 == run("horse.jpg", "-", "-m", "meter", "--out", "rows.jsonl", stdin=b"none.jpg\n")[0]
    row = next(row for row in read_rows() if row["image"] == "none.jpg")
    assert (False, "cannot be read: No such file or directory", {}) == (row["ok"], row["error"], row["values"])


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet"])
def test_rows_of_another_task_are_not_mixed(
    run: Run, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_photos(tmp_path / "a", horse=b"horse")
    assert 0 == run("a", "-m", "tagger", "--out", name)[0]
    before = Path(name).read_bytes()
    write_photos(tmp_path / "a", other=b"horse")
    monkeypatch.setitem(canned_models.MODELS, "tagger", canned_models.MODELS["meter"])
    error = f"{name} has rows of task multilabel, not regress; pass another file"
    assert (2, error) == run("a", "-m", "tagger", "--out", name)
    assert before == Path(name).read_bytes()
