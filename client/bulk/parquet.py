"""Photos and rows in Parquet files, the one thing here that needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from savedmodel_bakery.client.bulk import photos
from savedmodel_bakery.client.bulk.photos import Photo
from savedmodel_bakery.client.bulk.rows import Row

_ROWS_PER_GROUP = 4_000
_PHOTOS_PER_READ = 64

SCHEMA = pa.schema(
    [
        pa.field("image", pa.string(), nullable=False),
        pa.field("ok", pa.bool_(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("error", pa.string()),
        pa.field(
            "top",
            pa.list_(pa.struct([("label", pa.string()), ("score", pa.float32()), ("class_id", pa.int32())])),
            nullable=False,
        ),
        pa.field("model", pa.string(), nullable=False),
        pa.field("version", pa.int64()),
        pa.field("signature", pa.string(), nullable=False),
    ]
)


def read_photos(path: Path, is_wanted: Callable[[str], bool]) -> Iterator[Photo]:
    """The photos of a file with the columns `image`, a photo's name there, and `content`, its bytes.

    Without `content` it is a list of files.

    Raises:
        OSError: it can't be read, or has other columns; the latter before the first photo.
    """
    try:
        with pq.ParquetFile(path) as file:
            has_content = _check_columns(file.schema_arrow)
            for group in range(file.num_row_groups):
                names = _names(file.read_row_group(group, columns=["image"]))
                if not has_content:
                    for name in names:
                        yield from photos.open_file(Path(name), is_wanted)
                    continue
                keys = [f"{photos.spell(path)}/{name}" for name in names]
                if any(wanted := [is_wanted(key) for key in keys]):
                    contents = file.iter_batches(_PHOTOS_PER_READ, row_groups=[group], columns=["content"])
                    cells = chain.from_iterable(batch["content"] for batch in contents)
                    yield from (
                        _photo(key, cell) for key, cell, is_it in zip(keys, cells, wanted, strict=True) if is_it
                    )
    except pa.ArrowException as exc:
        raise OSError(str(exc)) from exc


def list_files(path: Path) -> list[Path] | None:
    """The files that a Parquet file lists; None where it lists none but holds photos, or can't be read."""
    try:
        with pq.ParquetFile(path) as file:
            if _check_columns(file.schema_arrow):
                return None
            return [Path(name) for name in _names(file.read(columns=["image"]))]
    except (OSError, RuntimeError, ValueError, pa.ArrowException):  # its reader says so in a row
        return None


def read_rows(path: Path) -> Iterator[Row]:
    """Read back what `write_rows` has written.

    Raises:
        ValueError: it is something else, or damaged.
        OSError: it can't be read.
    """
    try:
        with pq.ParquetFile(path) as file:
            if not file.schema_arrow.equals(SCHEMA):
                raise ValueError("it has other columns")
            for batch in file.iter_batches(_ROWS_PER_GROUP):
                yield from batch.to_pylist()
    except pa.ArrowException as exc:
        raise ValueError(str(exc)) from exc


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write rows to a file, a group of them at a time.

    Raises:
        OSError: it can't be written.
    """
    rows = iter(rows)
    with pq.ParquetWriter(path, SCHEMA) as writer:
        while group := list(islice(rows, _ROWS_PER_GROUP)):
            writer.write_table(pa.Table.from_pylist(group, SCHEMA))


def _check_columns(schema: pa.Schema) -> bool:
    """Whether a file holds photos; otherwise it lists them."""
    columns = {column.name: column.type for column in schema}
    if "image" not in columns or len(columns) < len(schema):
        raise OSError(f'it has the columns {", ".join(schema.names)}; "image", once, names the photos')
    name_type, content_type = columns["image"], columns.get("content")
    if not _is_text(name_type.value_type if pa.types.is_dictionary(name_type) else name_type):
        raise OSError(f'its column "image" is of {name_type}; supported are string, large_string and dictionaries')
    if content_type is not None and not (pa.types.is_binary(content_type) or pa.types.is_large_binary(content_type)):
        raise OSError(f'its column "content" is of {content_type}; supported are binary and large_binary')
    return content_type is not None


def _is_text(found: pa.DataType) -> bool:
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))


def _names(table: pa.Table) -> list[str]:
    if table["image"].null_count:
        raise OSError('its column "image" has a row without a name')
    names: list[str] = table["image"].to_pylist()
    return names


def _photo(key: str, cell: pa.Scalar) -> Photo:
    content: bytes = cell.as_py() or b""
    return Photo(key, len(content), lambda: content)
