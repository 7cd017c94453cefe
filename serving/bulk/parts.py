"""The folder of Parquet parts that a job writes, and what is done already. Must not know Ray or TensorFlow.

A part is whole or it isn't there: Parquet's footer is written last, so a part whose writing was cut off has none. It is
removed, and its photos are classified again. Nothing else is ever removed; parts are known by their names.
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
from savedmodel_bakery.client.bulk.results import WrongResults, lock
from savedmodel_bakery.wire.status import StatusError, invalid_argument

_PART = re.compile(r"rows-[0-9a-f]{32}-[0-9]{6}-[0-9]+\.parquet")


def part_name(write_uuid: str, task_index: int) -> str:
    """What a part is called, but for `-NUMBER.parquet`, which the writer appends; `write_uuid` is 32 hex digits."""
    return f"rows-{write_uuid}-{task_index:06}"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have a folder alone, as two jobs would take each other's unfinished parts for cut off.

    Raises:
        StatusError: INVALID_ARGUMENT where another job has it.
        OSError: it can't be written.
    """
    with (folder / ".lock").open("ab") as file:
        try:
            lock(file, folder)
        except WrongResults as exc:
            raise invalid_argument(str(exc)) from exc
        yield


@dataclass(frozen=True)
class Done:
    """What the parts hold.

    Attributes:
        keys: of the photos that have a row.
        failed: how many of them could not be classified.
    """

    keys: frozenset[str]
    failed: int


def read_parts(folder: Path, *, model: str) -> Done:
    """Look through all parts.

    Raises:
        StatusError: INVALID_ARGUMENT where the folder holds other Parquet files, rows of another model, or what can't
            be read.
    """
    keys: set[str] = set()
    failed = 0
    for path in _whole_parts(folder):
        try:
            table = pq.read_table(path, columns=["image", "ok", "model"])
        except (OSError, pa.ArrowException) as exc:
            raise _unreadable(path, exc) from exc
        for found in table["model"].unique().to_pylist():
            if found != model:
                raise invalid_argument(
                    f'{path} holds rows of model "{found}"; "{model}" is asked for; name another folder'
                )
        keys.update(table["image"].to_pylist())
        failed += table["ok"].to_pylist().count(False)
    return Done(frozenset(keys), failed)


def _whole_parts(folder: Path) -> Iterator[Path]:
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
            raise invalid_argument(f"{path} is no part of such a job; name another folder")
        yield path


def _unreadable(path: Path, exc: Exception) -> StatusError:
    return invalid_argument(f"{path} cannot be read: {exc}; without it, its photos are classified again")
