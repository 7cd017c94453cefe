"""A progress bar on stderr. Its total is counted while the job runs."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from threading import Thread
from typing import Any

from tqdm import tqdm

from savedmodel_bakery.answers.photos.sources import open_file

_TERMINAL_INTERVAL_S = 0.1
_LOG_INTERVAL_S = 30.0  # a log grows with each update


class Progress:
    """Shows the number of photos done, also by an earlier run, and in total, the rate and the remaining time."""

    def __init__(self, files: Iterable[Path], *, all_files: bool, done: int) -> None:
        interval_s = _TERMINAL_INTERVAL_S if sys.stderr.isatty() else _LOG_INTERVAL_S
        self._bar: Any = tqdm(
            initial=done, unit=" photos", mininterval=interval_s, maxinterval=interval_s, file=sys.stderr
        )
        self._ended = False
        self._all_files = all_files
        self._counted = 0
        # A daemon thread, because counting a large archive may take longer than the job.
        Thread(target=self._count, args=(files,), daemon=True).start()

    def add(self, photos: int, *, failed: int) -> None:
        """Add photos that are done; `failed` is the number of all failed photos so far."""
        if failed:
            self._bar.set_postfix(failed=failed, refresh=False)
        self._bar.update(photos)

    def finish(self) -> None:
        """Show that all photos are done, whatever was counted."""
        self._bar.total = self._bar.n

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._bar.close()

    def _count(self, files: Iterable[Path]) -> None:
        try:
            for file in files:
                for _ in open_file(file, self._count_photo, all_files=self._all_files):
                    pass  # `_count_photo` selects no photo
        except (_JobEndedError, ModuleNotFoundError):  # the job itself reports a missing module
            return
        self._bar.total = self._counted

    def _count_photo(self, _: str) -> bool:
        if self._ended:
            raise _JobEndedError
        self._counted += 1
        return False


class _JobEndedError(Exception):
    """The job ended before its photos were counted."""
