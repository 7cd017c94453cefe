"""The folder of Parquet parts that a job writes, and which photos have a row. Imports neither Ray nor TensorFlow.

Parquet's footer is written last, so an interrupted write leaves a part without one. Such a part is removed and its
photos are classified again. Nothing else is ever removed: parts are recognised by their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from savedmodel_bakery.client.bulk.parquet import SCHEMA
from savedmodel_bakery.client.bulk.results import ResultsError, lock
from savedmodel_bakery.wire.status import StatusError, invalid_argument

_PART = re.compile(r"rows-[0-9a-f]{32}-[0-9]{6}-[0-9]+\.parquet")


def part_name(write_uuid: str, task_index: int) -> str:
    """Return a part's file name, to which the writer appends `-NUMBER.parquet`; `write_uuid` is 32 hex digits."""
    return f"rows-{write_uuid}-{task_index:06}"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder for this job: two jobs would remove each other's unfinished parts.

    Raises:
        StatusError: INVALID_ARGUMENT if another job has locked it.
        OSError: the folder can't be written to.
    """
    with (folder / ".lock").open("ab") as file:
        try:
            lock(file, folder)
        except ResultsError as exc:
            raise invalid_argument(str(exc)) from exc
        yield


@dataclass(frozen=True)
class Done:
    """The photos that have a row.

    Attributes:
        keys: keys of the photos.
        failed: how many of them could not be classified.
    """

    keys: frozenset[str]
    failed: int


def read_parts(folder: Path, *, model: str) -> Done:
    """Read which photos have a row in any part, and remove unfinished parts.

    Raises:
        StatusError: INVALID_ARGUMENT if the folder contains other Parquet files, rows of another model, or files that
            can't be read.
    """
    keys: set[str] = set()
    failed = 0
    for path in _complete_parts(folder):
        try:
            table = pq.read_table(path, columns=["image", "ok", "model"])
        except (OSError, pa.ArrowException) as exc:
            raise _unreadable(path, exc) from exc
        others = [name for name in table["model"].unique().to_pylist() if name != model]
        if others:
            raise invalid_argument(f'{path} contains rows of model "{others[0]}", not "{model}"; use another folder')
        keys.update(table["image"].to_pylist())
        failed += table["ok"].to_pylist().count(False)
    return Done(frozenset(keys), failed)


def _complete_parts(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob("*.parquet")):
        try:
            names = pq.read_schema(path).names
        except pa.ArrowInvalid:
            if _PART.fullmatch(path.name):
                path.unlink()
                continue
            names = []
        except (OSError, pa.ArrowException) as exc:
            raise _unreadable(path, exc) from exc
        if names != SCHEMA.names:
            raise invalid_argument(f"{path} was not written by this command; use another folder")
        yield path


def _unreadable(path: Path, exc: Exception) -> StatusError:
    return invalid_argument(f"cannot read {path}: {exc}; remove it to classify its photos again")
