"""Writes the photos and archives that bulk jobs read, and reads the rows that they write."""

from __future__ import annotations

import csv
import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


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


def read_rows(path: str = "rows.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def read_labels(path: str = "rows.jsonl") -> dict[str, str]:
    """Return the label of each image, or the error of an image without one; an image must not have two rows."""
    rows = read_rows(path)
    labels = {row["image"]: row["label"] if row["ok"] else row["error"] for row in rows}
    assert len(labels) == len(rows)
    return labels


def read_image_labels(path: str) -> list[tuple[str, str]]:
    """Return image and label of each row of a file in any format."""
    if path.endswith(".parquet"):
        rows = pq.read_table(path).to_pylist()
    elif path.endswith(".csv"):
        rows = list(csv.DictReader(Path(path).read_text().splitlines()))
    else:
        rows = read_rows(path)
    return [(row["image"], row["label"]) for row in rows]
