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

from savedmodel_bakery.answers.rows import find_task_name
from savedmodel_bakery.files import lock
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
            lock(file)
        except BlockingIOError:
            raise invalid_argument(f"{folder} is being written by another job") from None
        yield


@dataclass(frozen=True)
class Done:
    """The photos that have a row.

    Attributes:
        keys: keys of the photos.
        failed: how many of them could not be read.
        task: name of the task of the rows; None without rows.
    """

    keys: frozenset[str]
    failed: int
    task: str | None

    def check_task(self, folder: Path, task: str) -> None:
        """Check that rows of a task can be added.

        Raises:
            StatusError: INVALID_ARGUMENT if the existing rows are of another task.
        """
        _check_task(folder, self.task, task)


def read_parts(folder: Path, *, model: str) -> Done:
    """Read which photos have a row in any part, and remove unfinished parts.

    Raises:
        StatusError: INVALID_ARGUMENT if the folder contains other Parquet files, rows of another model, or files that
            can't be read.
    """
    keys: set[str] = set()
    failed = 0
    task: str | None = None
    for path, task_of_part in _complete_parts(folder):
        _check_task(folder, task, task_of_part)
        task = task_of_part
        try:
            table = pq.read_table(path, columns=["image", "ok", "model"])
        except (OSError, pa.ArrowException) as exc:
            raise _unreadable(path, exc) from exc
        others = [name for name in table["model"].unique().to_pylist() if name != model]
        if others:
            raise invalid_argument(f'{path} contains rows of model "{others[0]}", not "{model}"; use another folder')
        keys.update(table["image"].to_pylist())
        failed += table["ok"].to_pylist().count(False)
    return Done(frozenset(keys), failed, task)


def _check_task(folder: Path, existing: str | None, task: str) -> None:
    if existing not in (None, task):
        raise invalid_argument(f"{folder} contains rows of task {existing}, not {task}; use another folder")


def _complete_parts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each complete part and the task of its rows."""
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
        try:
            task = find_task_name(names)
        except ValueError as exc:
            raise invalid_argument(f"{path} was not written by this command; use another folder") from exc
        yield path, task


def _unreadable(path: Path, exc: Exception) -> StatusError:
    return invalid_argument(f"cannot read {path}: {exc}; remove it to classify its photos again")
