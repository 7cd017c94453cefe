"""The row that a bulk job writes per photo; also the JSON of `bakery ask --json`. Does no I/O.

Columns: image (the photo's key), ok, label, error, top, model, version, signature. CSV cannot represent the list `top`,
so it has the score and class id of the best class instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from savedmodel_bakery.client.image_results import Classification

Row = dict[str, Any]

_COLUMNS = ("image", "ok", "label", "error", "top", "model", "version", "signature")

CSV_COLUMNS = ("image", "ok", "label", "score", "class_id", "error", "model", "version", "signature")


def make_row(image: str, classification: Classification, *, model: str, version: int | None, signature: str) -> Row:
    """Return the row of an image."""
    return {
        "image": image,
        "ok": classification.ok,
        "label": classification.label,
        "error": classification.error,
        "top": [{"label": row.label, "score": row.score, "class_id": row.class_id} for row in classification.top],
        "model": model,
        "version": version,
        "signature": signature,
    }


def row_json(row: Mapping[str, Any]) -> str:
    """Return a row as a JSON object on one line."""
    return json.dumps(row, ensure_ascii=False)


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
