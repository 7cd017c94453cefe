"""What a job writes of each photo: one row, the same wherever and by whatever it is classified.

Its columns are those of `python -m client --json` (`client.report.image_row`): image (the photo's key), ok, label,
error, top, model, version, signature. CSV, which has no lists, has score and class id of the best class for `top`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

_COLUMNS = ("image", "ok", "label", "error", "top", "model", "version", "signature")

CSV_COLUMNS = ("image", "ok", "label", "score", "class_id", "error", "model", "version", "signature")


def csv_cells(row: Row) -> list[Any]:
    """A row's cells in CSV; None is an empty one."""
    best = row["top"][0] if row["top"] else {}
    return [best.get(name) if name in ("score", "class_id") else row[name] for name in CSV_COLUMNS]


def row_of_csv(cells: Sequence[str]) -> Row:
    """The row of such cells, with the best class alone.

    Raises:
        ValueError: they are none.
    """
    row: Row = {name: cell or None for name, cell in zip(CSV_COLUMNS, cells, strict=True)}
    row["ok"] = {"True": True, "False": False}.get(row["ok"])
    score, class_id, version = row.pop("score"), row.pop("class_id"), row.pop("version")
    if row["ok"] is None or row["image"] is None:
        raise ValueError("neither True nor False, or no image")
    has_best = score is not None and class_id is not None
    row["top"] = [{"label": row["label"], "score": float(score), "class_id": int(class_id)}] if has_best else []
    row["version"] = None if version is None else int(version)
    return {name: row[name] for name in _COLUMNS}


def is_row(value: Any) -> bool:
    """Whether what was read back is a row."""
    return isinstance(value, dict) and isinstance(value.get("image"), str) and {"ok", "model", "top"} <= value.keys()
