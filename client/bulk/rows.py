"""The row that a bulk job writes per photo; also the JSON of `bakery ask --json`. Does no I/O.

Columns: image (the photo's key), ok, label, error, top, model, version, signature. CSV cannot represent the list `top`,
so it has the score and class id of the best class instead.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from savedmodel_bakery.client.image_results import (
    Classification,
    Detections,
    Embedding,
    ImageResult,
    Regression,
    Segmentation,
    Tags,
)

Row = dict[str, Any]

_COLUMNS = ("image", "ok", "label", "error", "top", "model", "version", "signature")

CSV_COLUMNS = ("image", "ok", "label", "score", "class_id", "error", "model", "version", "signature")


def make_row(image: str, result: ImageResult, *, model: str, version: int | None, signature: str) -> Row:
    """Return the row of an image."""
    return {
        "image": image,
        "ok": result.ok,
        **_task_cells(result),
        "model": model,
        "version": version,
        "signature": signature,
    }


def _task_cells(result: ImageResult) -> Row:
    match result:
        case Classification():
            return {"label": result.label, "error": result.error, "top": [asdict(scored) for scored in result.top]}
        case Tags():
            return {"error": result.error, "tags": [asdict(tag) for tag in result.tags]}
        case Embedding():
            return {"error": result.error, "embedding": [] if result.vector is None else result.vector.tolist()}
        case Detections():
            return {"error": result.error, "boxes": [asdict(box) for box in result.boxes]}
        case Segmentation():
            return {"error": result.error, "shares": dict(result.shares), "map_png": result.map_png or None}
        case Regression():
            return {"error": result.error, "values": dict(result.values)}
    raise TypeError(f"no row for {type(result).__name__}")


def row_json(row: Mapping[str, Any]) -> str:
    """Return a row as a JSON object on one line; bytes are `{"b64": …}`, as in the REST API."""
    return json.dumps(row, ensure_ascii=False, default=lambda content: {"b64": b64encode(content).decode()})


def csv_cells(row: Row) -> list[Any]:
    """Return the CSV cells of a row; None is an empty cell."""
    best = row["top"][0] if row["top"] else {}
    return [best.get(name) if name in ("score", "class_id") else row[name] for name in CSV_COLUMNS]


def parse_csv_cells(cells: Sequence[str]) -> Row:
    """Return the row of CSV cells; its `top` has the best class only.

    Raises:
        ValueError: the cells are not those of a row.
    """
    row: Row = {name: cell or None for name, cell in zip(CSV_COLUMNS, cells, strict=True)}
    row["ok"] = {"True": True, "False": False}.get(row["ok"])
    score, class_id, version = row.pop("score"), row.pop("class_id"), row.pop("version")
    if row["ok"] is None or row["image"] is None:
        raise ValueError("ok must be True or False, and image must not be empty")
    has_best = score is not None and class_id is not None
    row["top"] = [{"label": row["label"], "score": float(score), "class_id": int(class_id)}] if has_best else []
    row["version"] = None if version is None else int(version)
    return {name: row[name] for name in _COLUMNS}


def is_row(value: Any) -> bool:
    """Return whether a value that was read from a file is a row."""
    return isinstance(value, dict) and isinstance(value.get("image"), str) and {"ok", "model", "top"} <= value.keys()
