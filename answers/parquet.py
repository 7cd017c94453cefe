"""The Parquet files of a job: those with photos or with paths of photos, and those with rows of results.

Needs the extra `parquet`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from savedmodel_bakery.answers.photo import IsWanted, Photo, path_key
from savedmodel_bakery.answers.rows import COLUMNS, Row, parse_json, to_json

_PHOTOS_PER_READ = 64
_READ_ERRORS = (OSError, RuntimeError, ValueError, pa.ArrowException)
_ROWS_PER_GROUP = 4_000

_SCORED = (("label", pa.string()), ("score", pa.float32()))
_EDGES = tuple((name, pa.float32()) for name in ("ymin", "xmin", "ymax", "xmax"))
_MASK = (("mask_counts", pa.string()), ("mask_size", pa.list_(pa.int32())))
_POINT = (("name", pa.string()), ("y", pa.float32()), ("x", pa.float32()), ("score", pa.float32()))
_NUMBERS = pa.map_(pa.string(), pa.float32())
_FIELDS = {
    field.name: field
    for field in (
        pa.field("image", pa.string(), nullable=False),
        pa.field("ok", pa.bool_(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("error", pa.string()),
        pa.field("top", pa.list_(pa.struct([*_SCORED, ("class_id", pa.int32())])), nullable=False),
        pa.field("tags", pa.list_(pa.struct(_SCORED)), nullable=False),
        pa.field("embedding", pa.list_(pa.float32()), nullable=False),
        pa.field("boxes", pa.list_(pa.struct([*_SCORED, *_EDGES, *_MASK])), nullable=False),
        pa.field("points", pa.list_(pa.struct(_POINT)), nullable=False),
        pa.field("shares", _NUMBERS, nullable=False),
        pa.field("map_png", pa.binary()),
        pa.field("values", _NUMBERS, nullable=False),
        pa.field("npz", pa.binary()),
        pa.field("png", pa.binary()),
        pa.field("heads", pa.string(), nullable=False),
        pa.field("model", pa.string(), nullable=False),
        pa.field("version", pa.int64()),
        pa.field("signature", pa.string(), nullable=False),
    )
}
SCHEMAS = {task: pa.schema([_FIELDS[name] for name in columns]) for task, columns in COLUMNS.items()}
"""The columns of the rows of each task."""


class ColumnsError(OSError):
    """A Parquet file contains neither photos nor paths of photos."""


def read_photos(path: Path, is_wanted: IsWanted) -> Iterator[tuple[Photo | Path, Row]]:
    """Yield the photos in a file with the columns `image` (a name) and `content` (the encoded image).

    If there is no column `content`, yield the paths in `image`; with each, the values of other columns. Raises OSError
    if it cannot be read, or lacks these columns; the latter before the first photo.
    """
    try:
        with pq.ParquetFile(path) as file:
            has_content = _check_columns(file.schema_arrow)
            others = [name for name in file.schema_arrow.names if name not in ("image", "content")]
            for group in range(file.num_row_groups):
                names = _names(file.read_row_group(group, columns=["image"]))
                if not has_content:
                    rows = file.read_row_group(group, columns=others).to_pylist() if others else [{}] * len(names)
                    yield from zip(map(Path, names), rows, strict=True)
                    continue
                keys = [f"{path_key(path)}/{name}" for name in names]
                if any(wanted := [is_wanted(key) for key in keys]):
                    columns = ["content", *others]
                    batches = file.iter_batches(_PHOTOS_PER_READ, row_groups=[group], columns=columns)
                    rows = chain.from_iterable(batch.to_pylist() for batch in batches)
                    for key, row, is_selected in zip(keys, rows, wanted, strict=True):
                        content = row.pop("content") or b""
                        if is_selected:
                            yield _photo(key, content), row
    except pa.ArrowException as exc:
        raise OSError(str(exc)) from exc


def check_columns(path: Path) -> None:
    """Raise ColumnsError if a file has other columns; `read_photos` will report one that cannot be read."""
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
    except _READ_ERRORS:
        return
    _check_columns(schema)


def list_files(path: Path) -> list[Path] | None:
    """Return the paths that a Parquet file lists; None if it contains photos instead, or cannot be read."""
    try:
        with pq.ParquetFile(path) as file:
            if _check_columns(file.schema_arrow):
                return None
            return [Path(name) for name in _names(file.read(columns=["image"]))]
    except _READ_ERRORS:  # `read_photos` will report the error in a row
        return None


def read_rows(path: Path) -> Iterator[Row]:
    """Read the rows of a file that `write_rows` wrote. Raises ValueError for other columns, or damage."""
    try:
        with pq.ParquetFile(path) as file:
            if not any(file.schema_arrow.equals(schema) for schema in SCHEMAS.values()):
                raise ValueError("the columns differ")
            maps = [field.name for field in file.schema_arrow if pa.types.is_map(field.type)]
            for batch in file.iter_batches(_ROWS_PER_GROUP):
                for row in batch.to_pylist():
                    heads = {"heads": parse_json(row["heads"])} if "heads" in row else {}
                    yield row | {name: dict(row[name]) for name in maps} | heads
    except pa.ArrowException as exc:
        raise ValueError(str(exc)) from exc


def write_rows(rows: Iterable[Row], path: Path, task: str) -> None:
    """Write the rows of a task to a file, group by group."""
    rows = iter(rows)
    with pq.ParquetWriter(path, SCHEMAS[task]) as writer:
        while group := list(islice(rows, _ROWS_PER_GROUP)):
            writer.write_table(to_table(group, task))


def to_table(rows: Iterable[Row], task: str) -> pa.Table:
    """Return the rows of a task as a table with the columns `SCHEMAS`."""
    schema = SCHEMAS[task]
    maps = [field.name for field in schema if pa.types.is_map(field.type)]
    if "heads" in schema.names:
        rows = [row | {"heads": to_json(row["heads"])} for row in rows]
    return pa.Table.from_pylist([row | {name: list(row[name].items()) for name in maps} for row in rows], schema)


def _check_columns(schema: pa.Schema) -> bool:
    """Return whether a file contains photos; otherwise it contains their paths."""
    columns = {column.name: column.type for column in schema}
    if "image" not in columns or len(columns) < len(schema):
        raise ColumnsError(
            f'the columns are {", ".join(schema.names)}; exactly one must be "image", the name of the photo'
        )
    name_type, content_type = columns["image"], columns.get("content")
    if not _is_text(name_type.value_type if pa.types.is_dictionary(name_type) else name_type):
        raise ColumnsError(f'column "image" has type {name_type}; supported are string, large_string and dictionary')
    if content_type is not None and not (pa.types.is_binary(content_type) or pa.types.is_large_binary(content_type)):
        raise ColumnsError(f'column "content" has type {content_type}; supported are binary and large_binary')
    return content_type is not None


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _names(table: pa.Table) -> list[str]:
    if table["image"].null_count:
        raise OSError('column "image" has a row without a name')
    names: list[str] = table["image"].to_pylist()
    return names


def _photo(key: str, content: bytes) -> Photo:
    return Photo(key, len(content), lambda: content)
