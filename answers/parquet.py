"""The rows of results as Parquet. Needs the extra `parquet`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from savedmodel_bakery.answers.rows import COLUMNS, Row

_ROWS_PER_GROUP = 4_000

_SCORED = (("label", pa.string()), ("score", pa.float32()))
_EDGES = tuple((name, pa.float32()) for name in ("ymin", "xmin", "ymax", "xmax"))
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
        pa.field("boxes", pa.list_(pa.struct([*_SCORED, *_EDGES])), nullable=False),
        pa.field("shares", _NUMBERS, nullable=False),
        pa.field("map_png", pa.binary()),
        pa.field("values", _NUMBERS, nullable=False),
        pa.field("model", pa.string(), nullable=False),
        pa.field("version", pa.int64()),
        pa.field("signature", pa.string(), nullable=False),
    )
}
SCHEMAS = {task: pa.schema([_FIELDS[name] for name in columns]) for task, columns in COLUMNS.items()}
"""The columns of the rows of each task."""


def read_rows(path: Path) -> Iterator[Row]:
    """Read the rows of a file that `write_rows` wrote. Raises ValueError for other columns, or damage."""
    try:
        with pq.ParquetFile(path) as file:
            if not any(file.schema_arrow.equals(schema) for schema in SCHEMAS.values()):
                raise ValueError("the columns differ")
            maps = [field.name for field in file.schema_arrow if pa.types.is_map(field.type)]
            for batch in file.iter_batches(_ROWS_PER_GROUP):
                for row in batch.to_pylist():
                    yield row | {name: dict(row[name]) for name in maps}
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
    return pa.Table.from_pylist([row | {name: list(row[name].items()) for name in maps} for row in rows], schema)
