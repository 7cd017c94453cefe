"""A progress bar on stderr whose total is counted while the job runs already."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from threading import Thread
from typing import Any

from tqdm import tqdm

from savedmodel_bakery.client.bulk.photos import open_file

_EVERY_S = {True: 0.1, False: 30.0}  # a log isn't overwritten as a terminal is


class Progress:
    """Photos done of all, rate and time left; a context manager.

    Args:
        files: what is being done, to be counted.
        done: photos that were done before.
    """

    def __init__(self, files: Iterable[Path], *, done: int) -> None:
        every_s = _EVERY_S[sys.stderr.isatty()]
        self._bar: Any = tqdm(initial=done, unit=" photos", mininterval=every_s, maxinterval=every_s, file=sys.stderr)
        self._ended = False
        self._found = 0
        # A daemon, as a large archive may not be counted before it is done.
        Thread(target=self._count, args=(files,), daemon=True).start()

    def add(self, photos: int, *, failed: int) -> None:
        """Show that so many more are done, and how many failed in all."""
        if failed:
            self._bar.set_postfix(failed=failed, refresh=False)
        self._bar.update(photos)

    def finish(self) -> None:
        """Show that all is done, whatever was counted."""
        self._bar.total = self._bar.n

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._bar.close()

    def _count(self, files: Iterable[Path]) -> None:
        try:
            for file in files:
                for _ in open_file(file, self._is_counted):
                    pass  # none is wanted
        except (_Ended, ModuleNotFoundError):  # without a module the job itself ends, and says so
            return
        self._bar.total = self._found

    def _is_counted(self, _: str) -> bool:
        if self._ended:
            raise _Ended
        self._found += 1
        return False


class _Ended(Exception):  # noqa: N818 - no error
    """The job has ended before its photos were counted."""
