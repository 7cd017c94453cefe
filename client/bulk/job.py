"""Sends the photos of a bulk job and shows the progress. Memory does not grow with the number of photos."""

from __future__ import annotations

import contextvars
import math
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from types import MappingProxyType
from typing import Any

from savedmodel_bakery.answers.other_inputs import Specs, photo_inputs
from savedmodel_bakery.answers.photo import Photo
from savedmodel_bakery.answers.photo_files import open_file
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.rows import Row, make_photo_rows
from savedmodel_bakery.answers.task import Task
from savedmodel_bakery.client.client import BaseClient
from savedmodel_bakery.client.transports.failures import is_away
from savedmodel_bakery.errors import ClientError, DeadlineExceededError, RequestRefusedError
from savedmodel_bakery.wire.status import Code

_REQUEST_BYTES = 4 << 20  # a photo that would exceed it goes into the next request
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.1, 10.0


class Job:
    """Runs a model on photos, with several clients (one per concurrent request) at the same time.

    A request that cannot reach the server, times out or gets UNAVAILABLE is retried for `retry_s` with growing pauses,
    and so is one that an overloaded server asks to send later. If a request with several photos is refused for another
    reason, its photos are sent one by one, and then RESOURCE_EXHAUSTED is retried too. `others` are the inputs of the
    signature beside photos, whose values are in the lists that name the photos.
    """

    def __init__(
        self,
        clients: Sequence[BaseClient],
        *,
        model: str,
        task: Task[Any],
        signature: str,
        batch_size: int,
        retry_s: float,
        others: Specs = MappingProxyType({}),
    ) -> None:
        self._idle: SimpleQueue[BaseClient] = SimpleQueue()
        for client in clients:
            self._idle.put(client)
        self._signature = signature
        self._others = others
        self._make_rows = partial(
            make_photo_rows,
            predict=self._predict_with_retries,
            task=task,
            model=model,
            signature=signature,
            others=others,
        )
        self._batch_size = batch_size
        self._stopped = Event()
        self._retry_s = retry_s
        # Twice as many as clients: the others read their photos meanwhile.
        self._workers = 2 * len(clients)

    def run(self, photos: Iterable[Photo]) -> Iterator[list[Row]]:
        """Yield the rows of photos in the order of the responses. Raise ClientErrors that do not depend on photos."""
        pool = ThreadPoolExecutor(self._workers)
        try:
            pending: set[Future[list[Row]]] = set()
            for batch in _batches(photos, self._batch_size):
                run = contextvars.copy_context().run  # with the span of the job
                pending.add(pool.submit(run, self._make_rows, batch))
                if len(pending) >= self._workers:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            yield from (future.result() for future in as_completed(pending))
        finally:
            self._stopped.set()
            pool.shutdown(cancel_futures=True)

    def _predict_with_retries(self, photos: list[tuple[bytes, Mapping[str, Any]]]) -> Prediction:
        """Predict with the next idle client."""
        client = self._idle.get()
        end_s = time.monotonic() + self._retry_s
        attempts = 0
        try:
            while True:
                attempts += 1
                try:
                    return client.predict(photo_inputs(photos, self._others), signature=self._signature)
                except ClientError as exc:
                    pause_s = _pause_s(exc, attempts, single=len(photos) == 1)
                    if time.monotonic() + pause_s >= end_s or self._stopped.wait(pause_s):
                        raise
        finally:
            self._idle.put(client)


def _batches(photos: Iterable[Photo], size: int) -> Iterator[list[Photo]]:
    batch: list[Photo] = []
    n_bytes = 0
    for photo in photos:
        if batch and (len(batch) == size or n_bytes + photo.n_bytes > _REQUEST_BYTES):
            yield batch
            batch, n_bytes = [], 0
        batch.append(photo)
        n_bytes += photo.n_bytes
    if batch:
        yield batch


def _pause_s(error: ClientError, attempts: int, *, single: bool) -> float:
    """Return the seconds until a request, with a single photo or several, is sent again; infinite if it must not be."""
    stated_s = None
    is_transient = is_away(error) or isinstance(error, DeadlineExceededError)
    if isinstance(error, RequestRefusedError):
        stated_s = error.retry_after_s
        is_transient |= stated_s is not None or (single and error.code is Code.RESOURCE_EXHAUSTED)
    if not is_transient:
        return math.inf
    longest_s = min(_MIN_PAUSE_S * 2 ** min(attempts, 10), _MAX_PAUSE_S)
    return max(random.uniform(0, longest_s), stated_s or 0.0)


class Progress:
    """Shows the number of photos done, also by an earlier run, and in total, the rate and the remaining time."""

    def __init__(self, files: Iterable[Path], *, all_files: bool, done: int) -> None:
        from tqdm.auto import tqdm  # bars in notebooks too

        interval_s = 0.1 if sys.stderr.isatty() else 30.0  # a log grows with each update
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
