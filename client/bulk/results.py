"""Rows on disk, so that a job which was killed at any moment goes on where it was.

Rows are appended to a journal of JSON lines. For `results.jsonl` that is the file itself; for CSV and Parquet it lies
beside it, as `results.csv.jsonl`, until the job is done and the file is made of it in one step; to go on, it is
made of the file again. What counts is whole lines: a line that was cut off is removed, and its photo is
asked about again. Rows are only taken away by putting another journal, which is whole, in the place of the journal.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from savedmodel_bakery.client.bulk.keys import Keys
from savedmodel_bakery.client.bulk.rows import CSV_COLUMNS, Row, csv_cells, is_row, row_of_csv
from savedmodel_bakery.client.commands.report import row_json

FORMATS = (".jsonl", ".csv", ".parquet")

_BEGINNING = b'{"image": "'  # of every line, as rows are written


class WrongResults(Exception):  # noqa: N818 - the name says what happened
    """A job can't write there, or not go on with what lies there; the text says why."""


class Results:
    """The rows of one job. A context manager; one process at a time has it.

    Attributes:
        files: what is written.
        rows: how many there are.
        failed: how many of them are of photos that could not be classified.

    Args:
        out: file to write; its suffix, one of `FORMATS`, says how.
        model: name of the model that is asked.
        retry_failed: leave out the rows of photos that could not be classified, so that these are new again.

    Raises:
        WrongResults: `out` is of another kind, is being written, or holds something else.
        OSError: it can't be read or written.
        ModuleNotFoundError: for Parquet, where pyarrow is not installed.
    """

    def __init__(self, out: Path, *, model: str, retry_failed: bool = False) -> None:
        if out.suffix not in FORMATS:
            raise WrongResults(f"{out} is no name for results; it ends in {', '.join(FORMATS)}")
        if out.suffix == ".parquet":
            import pyarrow  # noqa: F401 - it must not lack when the job is done
        self._out = out
        self._journal = out if out.suffix == ".jsonl" else out.with_name(f"{out.name}.jsonl")
        self._model = model
        self.files = (self._out, self._journal)
        self.rows = self.failed = 0
        self._file = _open_locked(self._journal)
        self._keys = Keys()
        try:
            if self._journal != out and out.exists() and not self._journal.stat().st_size:
                self._rewrite(self._finished_lines())
            if self._read_back(retry_failed=retry_failed):
                self._file.seek(0)
                self._rewrite(line for line in self._file if json.loads(line)["ok"])
        except BaseException:
            self.__exit__()
            raise

    def is_new(self, key: str) -> bool:
        """Whether a photo has neither a row nor been met before; to be asked once about each."""
        return self._keys.add(key)

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows; they outlast this process."""
        self._file.write(b"".join(map(_line, rows)))
        self._file.flush()
        self.rows += len(rows)
        self.failed += sum(not row["ok"] for row in rows)

    def finish(self) -> None:
        """Make the file that was asked for; there are all rows now."""
        if self._journal == self._out:
            return
        staged = _staged(self._out)
        self._file.seek(0)
        rows = map(json.loads, self._file)
        if self._out.suffix == ".csv":
            _write_csv(rows, staged)
        else:
            from savedmodel_bakery.client.bulk.parquet import write_rows

            write_rows(rows, staged)
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
        """Take in the rows that are there; how many were left out."""
        whole = left_out = 0
        self._file.seek(0)
        for number, line in enumerate(self._file, 1):
            row = _row(line)
            if (row is None and line.endswith(b"\n")) or not line.startswith(_BEGINNING[: len(line)]):
                raise WrongResults(f"line {number} of {self._journal} is no row of such a job; name another file")
            if row is None or not line.endswith(b"\n"):
                self._file.truncate(whole)
                break
            whole += len(line)
            self._check_model(row, f"line {number} of {self._journal}")
            if retry_failed and not row["ok"]:
                left_out += 1
                continue
            self._keys.add(row["image"])
            self.rows += 1
            self.failed += not row["ok"]
        return left_out

    def _finished_lines(self) -> Iterator[bytes]:
        """The journal that the finished file was made of; of the classes in CSV the best."""
        for number, row in enumerate(_finished_rows(self._out), 1):
            self._check_model(row, f"row {number} of {self._out}")
            yield _line(row)

    def _check_model(self, row: Row, place: str) -> None:
        if row["model"] != self._model:
            raise WrongResults(f'{place} is of model "{row["model"]}"; "{self._model}" is asked; name another file')

    def _rewrite(self, lines: Iterable[bytes]) -> None:
        """Put a journal of these lines in the place of the journal, in one step."""
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
    return f"{row_json(row)}\n".encode()


def _row(line: bytes) -> Row | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if is_row(found) else None


def _staged(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _finished_rows(path: Path) -> Iterator[Row]:
    if path.suffix == ".csv":
        rows = _read_csv(path)
    else:
        from savedmodel_bakery.client.bulk.parquet import read_rows

        rows = read_rows(path)
    try:
        for row in rows:
            if not is_row(row):
                raise ValueError
            yield row
    except ValueError:
        raise WrongResults(f"{path} holds other things than the rows of such a job; name another file") from None


def _read_csv(path: Path) -> Iterator[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        cells = csv.reader(file, strict=True)
        try:
            if next(cells, None) != list(CSV_COLUMNS):
                raise ValueError
            yield from map(row_of_csv, cells)
        except csv.Error as exc:
            raise ValueError(str(exc)) from exc


def _write_csv(rows: Iterator[Row], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        writer.writerows(map(csv_cells, rows))


def _open_locked(path: Path) -> IO[bytes]:
    file = path.open("a+b")
    try:
        lock(file, path)
        # Another job may just have put one in its place.
        if not (path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))):
            raise WrongResults(f"{path} is being written by another job")
    except BaseException:
        file.close()
        raise
    return file


def lock(file: IO[bytes], path: Path) -> None:
    """Have a file alone, until it is closed.

    Raises:
        WrongResults: another process has it.
    """
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise WrongResults(f"{path} is being written by another job") from None
