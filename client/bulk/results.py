"""Stores the rows of a bulk job, so that a job that was killed continues where it stopped.

Rows are appended to a journal of JSON lines. For `results.jsonl` the journal is the file itself. For CSV and Parquet it
is a file beside it, such as `results.csv.jsonl`; at the end of the job the result is written from it and renamed into
place, and a later run recreates the journal from the result. An incomplete last line is removed, and its photo is
classified again. Other rows are only removed by replacing the whole journal.
"""

from __future__ import annotations

import csv
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from savedmodel_bakery.answers.rows import (
    CSV_COLUMNS,
    Row,
    csv_cells,
    find_task_name,
    parse_csv_cells,
    parse_row,
    to_json,
)
from savedmodel_bakery.extras import naming_extras
from savedmodel_bakery.files import lock

FORMATS = (".jsonl", ".csv", ".parquet")

_LINE_START = b'{"image": "'  # every row is written with this start


class ResultsError(Exception):
    """A job cannot write to a file, or cannot continue with its content; the text is the reason."""


class Results:
    """The rows of one job. A context manager; its files are locked against other processes.

    The suffix of `out`, one of `FORMATS`, selects the format. With `retry_failed` the rows of photos that failed are
    removed, so that these are sent again. Raises ResultsError, OSError, or MissingPackageError for Parquet.
    """

    def __init__(self, out: Path, *, model: str, retry_failed: bool = False) -> None:
        if out.suffix not in FORMATS:
            raise ResultsError(f"invalid file name {out}: must end with {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
        if out.suffix == ".parquet":
            with naming_extras("Parquet", "parquet"):
                import pyarrow  # noqa: F401 - fail before the job, not after it
        self._out = out
        self._journal = out if out.suffix == ".jsonl" else out.with_name(f"{out.name}.jsonl")
        self._model = model
        self._task: str | None = None
        self.files = (self._out, self._journal)
        self.rows = self.failed = 0
        self._file = _open_locked(self._journal)
        self._keys = _create_keys()
        try:
            if self._journal != out and out.exists() and not self._journal.stat().st_size:
                self._rewrite(self._finished_lines())
            if self._read_back(retry_failed=retry_failed):
                self._file.seek(0)
                self._rewrite(line for line in self._file if json.loads(line)["ok"])
        except BaseException:
            self.__exit__()
            raise

    def check_task(self, task: str) -> None:
        """Raise ResultsError unless the rows to add are of the same task as the existing ones."""
        self._task = self._task or task
        if task != self._task:
            raise ResultsError(f"{self._out} has rows of task {self._task}, not {task}; pass another file")

    def is_new(self, key: str) -> bool:
        """Return whether a photo has no row yet and was not passed here before."""
        return self._keys.execute("INSERT OR IGNORE INTO keys VALUES (?)", (key,)).rowcount == 1

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows, so that they are not lost if this process is killed."""
        self._file.write(b"".join(map(_line, rows)))
        self._file.flush()
        self.rows += len(rows)
        self.failed += sum(not row["ok"] for row in rows)

    def finish(self) -> None:
        """Write the result; all rows were added. CSV and Parquet files without rows are not written."""
        if self._journal == self._out or self._task is None:
            return
        staged = _staged(self._out)
        self._file.seek(0)
        rows = map(parse_row, self._file)
        if self._out.suffix == ".csv":
            _write_csv(rows, staged, self._task)
        else:
            from savedmodel_bakery.answers.parquet import write_rows

            write_rows(rows, staged, self._task)
        staged.replace(self._out)
        self._journal.unlink()

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        if self._journal != self._out and not os.fstat(self._file.fileno()).st_size:
            self._journal.unlink(missing_ok=True)
        self._file.close()
        self._keys.close()

    def _read_back(self, *, retry_failed: bool) -> int:
        """Read the existing rows, and return the number of rows to remove."""
        valid_bytes = removed = 0
        self._file.seek(0)
        for number, line in enumerate(self._file, 1):
            row = _row(line)
            if (row is None and line.endswith(b"\n")) or not line.startswith(_LINE_START[: len(line)]):
                raise ResultsError(f"line {number} of {self._journal} is not a row of a bulk job; pass another file")
            if row is None or not line.endswith(b"\n"):
                self._file.truncate(valid_bytes)
                break
            valid_bytes += len(line)
            self._check(row, f"line {number} of {self._journal}")
            if retry_failed and not row["ok"]:
                removed += 1
                continue
            self.is_new(row["image"])
            self.rows += 1
            self.failed += not row["ok"]
        return removed

    def _finished_lines(self) -> Iterator[bytes]:
        """Yield the journal lines of a finished result; CSV has the best class only."""
        if self._out.suffix == ".csv":
            rows = _read_csv(self._out)
        else:
            from savedmodel_bakery.answers.parquet import read_rows

            rows = read_rows(self._out)
        try:
            for number, row in enumerate(rows, 1):
                self._check(row, f"row {number} of {self._out}")
                yield _line(row)
        except ValueError:
            raise ResultsError(f"{self._out} does not contain the rows of a bulk job; pass another file") from None

    def _check(self, row: Row, place: str) -> None:
        if row["model"] != self._model:
            raise ResultsError(f'{place} is from model "{row["model"]}", not "{self._model}"; pass another file')
        self.check_task(find_task_name(row))

    def _rewrite(self, lines: Iterable[bytes]) -> None:
        """Replace the journal by one with these lines, atomically."""
        staged = _staged(self._journal)
        staged.unlink(missing_ok=True)
        file = _open_locked(staged)
        try:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
            staged.replace(self._journal)
        except BaseException:
            file.close()
            staged.unlink(missing_ok=True)
            raise
        self._file.close()
        self._file = file


def _line(row: Row) -> bytes:
    return f"{to_json(row)}\n".encode()


def _row(line: bytes) -> Row | None:
    try:
        return parse_row(line)
    except ValueError:
        return None


def _staged(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _read_csv(path: Path) -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        cells = csv.reader(file, strict=True)
        try:
            task = find_task_name(next(cells, []), CSV_COLUMNS)
            for row in cells:
                yield parse_csv_cells(task, row)
        except csv.Error as exc:
            raise ValueError(str(exc)) from exc


def _write_csv(rows: Iterator[Row], path: Path, task: str) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CSV_COLUMNS[task])
        writer.writerows(map(csv_cells, rows))


def _open_locked(path: Path) -> IO[bytes]:
    file = path.open("a+b")
    try:
        lock(file)
        if not (path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))):
            raise BlockingIOError  # another job has replaced it in the meantime
    except BlockingIOError:
        file.close()
        raise ResultsError(f"{path} is being written by another job") from None
    except BaseException:
        file.close()
        raise
    return file


def _create_keys() -> sqlite3.Connection:
    """Create an empty set of keys in a temporary file; for one thread."""
    # With an empty name SQLite uses a temporary file, which it writes only if its cache of 2 MB is full.
    keys = sqlite3.connect("", isolation_level=None)
    keys.execute("PRAGMA journal_mode = OFF")
    keys.execute("CREATE TABLE keys (key TEXT PRIMARY KEY) WITHOUT ROWID")
    keys.execute("BEGIN")
    return keys
