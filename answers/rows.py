"""The row that a bulk job writes per photo, from a model or from a file; also the JSON of `bakery ask --json`.

Columns: image (the photo's key), ok, those of the task, model, version, signature. In the row of a photo that could not
be read, the columns of the task are empty, apart from `error`. CSV cannot represent lists: of a classifier it has the
best class, and of other tasks the lists as JSON.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from savedmodel_bakery.answers.images import convert_photo
from savedmodel_bakery.answers.other_inputs import SECOND_IMAGE, Specs, parse_value, stack_values
from savedmodel_bakery.answers.photo import Photo, UnreadablePhotoError, file_photo
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.signatures import TensorSpec
from savedmodel_bakery.answers.task import ImageResult, Task
from savedmodel_bakery.answers.tasks import TASKS
from savedmodel_bakery.errors import ClientError, RequestRefusedError, image_error, one_line
from savedmodel_bakery.wire.status import Code

Row = dict[str, Any]

COLUMNS = {task.name: ("image", "ok", *task.cells(task.failed("")), "model", "version", "signature") for task in TASKS}
"""The columns of the rows of each task, in their order."""

CSV_COLUMNS = COLUMNS | {
    "classify": ("image", "ok", "label", "score", "class_id", "error", "model", "version", "signature")
}
"""The columns of the CSV files of each task."""

_TEXT_COLUMNS = ("image", "label", "error", "model", "signature")

# These may be caused by an image or by the size of a request, unless the server asks to try again later. Any other code
# would be the same for every image.
_IMAGE_CODES = (
    Code.INVALID_ARGUMENT,
    Code.RESOURCE_EXHAUSTED,
    Code.INTERNAL,
    Code.UNKNOWN,
    Code.OUT_OF_RANGE,
    Code.ABORTED,
    Code.DATA_LOSS,
)

_Content = tuple[bytes, Mapping[str, Any]]
"""A photo as it is sent, and its values of the inputs beside it."""

Predict = Callable[[list[_Content]], Prediction]


def make_row(
    task: Task[Any], image: str, result: ImageResult, *, model: str, version: int | None, signature: str
) -> Row:
    """Return the row of an image."""
    return {
        "image": image,
        "ok": result.ok,
        **task.cells(result),
        "model": model,
        "version": version,
        "signature": signature,
    }


def make_photo_rows(
    photos: Sequence[Photo],
    predict: Predict,
    *,
    task: Task[Any],
    model: str,
    signature: str,
    others: Specs = MappingProxyType({}),
) -> list[Row]:
    """Read photos, send them in one request, and return their rows; `others` are the inputs of the model beside photos.

    If the request is refused, each photo is sent on its own; one that is refused again gets a row with the reason.
    ClientErrors that do not depend on the photos are raised. `predict` runs `signature` on images.
    """
    contents = [_read(photo, task, others) for photo in photos]
    results = iter(_run([content for content in contents if isinstance(content, tuple)], predict, task))
    rows = []
    for photo, content in zip(photos, contents, strict=True):
        result, version = next(results) if isinstance(content, tuple) else (content, None)
        rows.append(make_row(task, photo.key, result, model=model, version=version, signature=signature))
    return rows


def _read(photo: Photo, task: Task[Any], others: Specs) -> _Content | ImageResult:
    try:
        values = {alias: _value(alias, photo.columns[alias], spec) for alias, spec in others.items()}
        stack_values([values], others)
        return convert_photo(photo.read()), values
    except KeyError as exc:
        return _failed(task, f"the photo has no {exc}: it must be in a .csv or .parquet file with such a column")
    except (UnreadablePhotoError, ValueError) as exc:
        return _failed(task, str(exc))


def _value(alias: str, cell: Any, spec: TensorSpec) -> Any:
    """Return the value of an input from the cell of a list; that of a second image is its path, or its bytes."""
    if alias == SECOND_IMAGE:
        return convert_photo(cell if isinstance(cell, bytes) else file_photo(str(cell), Path(str(cell))).read())
    return parse_value(alias, cell, spec) if isinstance(cell, str) else cell


def _run(images: list[_Content], predict: Predict, task: Task[Any]) -> list[tuple[ImageResult, int | None]]:
    if not images:
        return []
    try:
        prediction = predict(images)
    except ClientError as exc:
        if not (isinstance(exc, RequestRefusedError) and exc.code in _IMAGE_CODES and exc.retry_after_s is None):
            raise
        if len(images) == 1:
            return [(_failed(task, image_error(str(exc))), None)]
        return [versioned for image in images for versioned in _run([image], predict, task)]
    return [(result, prediction.version) for result in task.read(prediction, batch=len(images))]


def _failed(task: Task[Any], reason: str) -> ImageResult:
    result: ImageResult = task.failed(one_line(reason))
    return result


def to_json(value: Any) -> str:
    """Return a row, or the value of a column, as JSON on one line; bytes are `{"b64": …}`, as in the REST API."""
    return json.dumps(value, ensure_ascii=False, default=lambda content: {"b64": b64encode(content).decode()})


def parse_row(line: bytes) -> Row:
    """Return the row in a JSON object of `to_json`. Raises ValueError if it is not a row."""
    try:
        row = parse_json(line)
    except RecursionError as exc:
        raise ValueError(str(exc)) from exc
    if not isinstance(row, dict) or not isinstance(row.get("image"), str):
        raise ValueError("not a row")
    find_task_name(row)
    return row


def find_task_name(columns: Iterable[str], columns_by_task: Mapping[str, Sequence[str]] = COLUMNS) -> str:
    """Return the task of a row, or of the columns of rows; pass `CSV_COLUMNS` for those of a CSV file.

    Raises ValueError if no task has exactly these columns.
    """
    for task, names in columns_by_task.items():
        if list(names) == list(columns):
            return task
    raise ValueError(f"no task has the columns {', '.join(columns)}")


def csv_cells(row: Row) -> list[Any]:
    """Return the CSV cells of a row; None is an empty cell."""
    best = row["top"][0] if row.get("top") else {}
    cells = {"score": best.get("score"), "class_id": best.get("class_id"), **row}
    values = (cells[name] for name in CSV_COLUMNS[find_task_name(row)])
    return [to_json(value) if isinstance(value, dict | list | bytes) else value for value in values]


def parse_csv_cells(task: str, cells: Sequence[str]) -> Row:
    """Return the row of the CSV cells of a task; that of a classifier has the best class only."""
    texts = {name: cell or None for name, cell in zip(CSV_COLUMNS[task], cells, strict=True)}
    ok = {"True": True, "False": False}.get(texts.pop("ok") or "")
    if ok is None or texts["image"] is None:
        raise ValueError("ok must be True or False, and image must not be empty")
    row: Row = {
        name: text if name in _TEXT_COLUMNS or text is None else parse_json(text) for name, text in texts.items()
    }
    if task == "classify":
        best = {"label": row["label"], "score": row.pop("score"), "class_id": row.pop("class_id")}
        row["top"] = [] if best["score"] is None else [best]
        if not all(isinstance(scored["class_id"], int) for scored in row["top"]):
            raise ValueError("class_id must be an integer")
    return {name: ok if name == "ok" else row[name] for name in COLUMNS[task]}


def parse_json(text: str | bytes) -> Any:
    """Return the value in the JSON of `to_json`."""
    return json.loads(text, object_hook=_decode_bytes)


def _decode_bytes(value: Row) -> Any:
    is_bytes = value.keys() == {"b64"} and isinstance(value["b64"], str)
    return b64decode(value["b64"], validate=True) if is_bytes else value
