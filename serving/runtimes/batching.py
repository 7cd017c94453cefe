"""Batching: joins concurrent requests along their first dimension, runs them once, and splits the outputs.

TensorFlow's scheduler (`batch_scheduler`) decides which requests share a batch, and when it runs. This module assembles
the batch and reports errors to its members with tensorflow_model_server's messages.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.options.config_files import BatchingParameters, check_sizes
from savedmodel_bakery.serving.runtimes import Runtime
from savedmodel_bakery.serving.runtimes.batch_scheduler import BatchScheduler
from savedmodel_bakery.serving.telemetry import metrics
from savedmodel_bakery.serving.telemetry.requests import report_exception
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor

logger = logging.getLogger(__name__)

# A row's number is that of its task times _MAX_ROWS, plus its index. Task numbers repeat after _MAX_TASKS.
_MAX_ROWS = _MAX_TASKS = 2**31

_TIME_IS_OVER = {Code.DEADLINE_EXCEEDED, Code.CANCELLED}
"""Errors of runs that no other run would avoid; one of several requests may cause any other one."""


@dataclass
class _Task:
    """A waiting request."""

    feeds: Mapping[str, Tensor]
    fetches: tuple[str, ...]  # each once
    enqueued: float  # when it arrived, on time.monotonic's clock
    context: RequestContext
    results: dict[int, list[Tensor]] = field(default_factory=dict)  # by their first row; several if it was split
    error: StatusError | None = None  # of the batch of any of its rows


class _Piece(NamedTuple):
    """The rows of one task that are in one batch."""

    task: _Task
    start: int
    stop: int


class Batcher:
    """A runtime that joins calls and runs them on another runtime; see `Runtime`.

    `slots` limits the number of batches that run at the same time, over all models.

    Raises:
        StatusError: INVALID_ARGUMENT if the parameters contradict each other.
    """

    def __init__(self, runtime: Runtime, parameters: BatchingParameters, slots: threading.Semaphore) -> None:
        check_sizes(parameters)
        self._runtime = runtime
        self._parameters = parameters
        self._slots = slots
        self._tasks: dict[int, _Task] = {}
        self._numbers = itertools.count()
        self._scheduler = BatchScheduler(parameters, self._run_rows)

    @property
    def signatures(self) -> Mapping[str, Any]:
        """See Runtime."""
        return self._runtime.signatures

    def run(self, feeds: Mapping[str, Tensor], fetches: Sequence[str], context: RequestContext) -> list[Tensor]:
        """See Runtime; a batch runs until the last of its requests has ended."""
        count = _count_rows(feeds)
        # The scheduler would hold a request without rows until another one arrives; and numpy cannot join tensors of
        # shapes that it cannot represent.
        if count == 0 or any(tensor.shape is not None for tensor in feeds.values()):
            return self._runtime.run(feeds, fetches, context)
        metrics.INPUT_BATCH_SIZE.observe(count)
        limit = self._parameters.max_batch_size
        if count > limit:  # the scheduler's check, before a number is made for each row
            raise invalid_argument(f"Task size {count} is larger than maximum input batch size {limit}")
        task = _Task(feeds, tuple(sorted(set(fetches))), time.monotonic(), context)
        number = next(self._numbers) % _MAX_TASKS
        rows = np.arange(number * _MAX_ROWS, number * _MAX_ROWS + count)
        self._tasks[number] = task
        try:
            self._scheduler.submit(repr((sorted(feeds), task.fetches)), rows)
        finally:
            del self._tasks[number]
        if task.error:
            raise task.error
        outputs = dict(zip(task.fetches, _assemble(task.results), strict=True))
        return [outputs[name] for name in fetches]

    def close(self) -> None:
        """See Runtime."""
        self._scheduler.close()
        self._runtime.close()

    def _run_rows(self, rows: np.ndarray) -> None:
        """Run a batch and store the result in its tasks; see `BatchScheduler`."""
        with self._slots:
            for group in self._groups(self._pieces(rows)):
                self._run_group(group)

    def _run_group(self, group: list[_Piece]) -> None:
        """Run pieces together; after an error in halves, so that only the pieces that cause it get it."""
        pieces = _without_cancelled(group)
        try:
            self._run_pieces(pieces)
            return
        except Exception as caught:
            error = caught if isinstance(caught, StatusError) else report_exception(logger, "a batch")
        # Not in the `except` block: errors of these runs would have the one above as their context.
        if len(pieces) == 1 or error.code in _TIME_IS_OVER:
            _fail(pieces, error)
            return
        metrics.HALVED_BATCHES.inc()
        middle = len(pieces) // 2
        self._run_group(pieces[:middle])
        self._run_group(pieces[middle:])

    def _pieces(self, rows: np.ndarray) -> list[_Piece]:
        """Return the pieces of a batch, without the padding at its end."""
        count = len(np.unique(rows))
        starts = np.flatnonzero(np.diff(rows[:count], prepend=-2) != 1).tolist()
        pieces = []
        for start, stop in itertools.pairwise([*starts, count]):
            number, first = divmod(int(rows[start]), _MAX_ROWS)
            pieces.append(_Piece(self._tasks[number], first, first + stop - start))
        return pieces

    def _groups(self, pieces: list[_Piece]) -> list[list[_Piece]]:
        """Group pieces that can run together: of the same element types and, if tensors are padded, the same ranks."""
        groups: dict[object, list[_Piece]] = {}
        for piece in pieces:
            key = tuple(
                (name, tensor.dtype.number, tensor.array.ndim if self._parameters.pad_variable_length_inputs else None)
                for name, tensor in sorted(piece.task.feeds.items())
            )
            groups.setdefault(key, []).append(piece)
        return list(groups.values())

    def _run_pieces(self, pieces: list[_Piece]) -> None:
        if not pieces:
            return
        count = sum(piece.stop - piece.start for piece in pieces)
        padding = next((size for size in self._parameters.allowed_batch_sizes if size >= count), count) - count
        with _joined_context(pieces) as context:
            self._count(pieces, count + padding, padding)
            feeds = {
                name: Tensor(self._join(name, pieces, padding), tensor.dtype)
                for name, tensor in pieces[0].task.feeds.items()
            }
            outputs = self._runtime.run(feeds, pieces[0].task.fetches, context)
        for tensor in outputs:
            _check_output(tensor.array, count + padding)
        offset = 0
        for task, start, stop in pieces:
            end = offset + stop - start
            task.results[start] = [Tensor(tensor.array[offset:end], tensor.dtype) for tensor in outputs]
            offset = end

    def _count(self, pieces: list[_Piece], size: int, padding: int) -> None:
        """Record a batch of `size` rows, `padding` included, in the metrics."""
        metrics.WRAPPED_RUN_COUNT.inc()
        metrics.PROCESSED_BATCH_SIZE.observe(size)
        metrics.PADDING_SIZE.labels(str(size)).observe(padding)
        waited = metrics.QUEUING_LATENCY.labels(self._parameters.thread_pool_name)
        for piece in pieces:
            waited.observe((time.monotonic() - piece.task.enqueued) * 1e6)

    def _join(self, name: str, pieces: list[_Piece], padding: int) -> np.ndarray:
        arrays = [task.feeds[name].array[start:stop] for task, start, stop in pieces]
        if any(array.shape[1:] != arrays[0].shape[1:] for array in arrays):
            if not self._parameters.pad_variable_length_inputs:
                raise StatusError(
                    Code.FAILED_PRECONDITION,
                    f"Tensors with name '{name}' from different tasks have different shapes and padding is turned off. "
                    "Set pad_variable_length_inputs to true, or ensure that all tensors with the same name have equal "
                    "dimensions starting with the first dim.",
                )
            largest = [max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True)]
            arrays = [_enlarge(array, largest) for array in arrays]
        if padding:
            arrays = [*arrays, np.repeat(arrays[-1][:1], padding, axis=0)]
        return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]


def _count_rows(feeds: Mapping[str, Tensor]) -> int:
    arrays = [tensor.array for tensor in feeds.values()]
    if not arrays:
        raise invalid_argument("Batching Run() must have at least one input tensor")
    if any(array.ndim == 0 for array in arrays):
        raise invalid_argument("Batching Run() input tensors must have at least one dimension")
    if any(len(array) != len(arrays[0]) for array in arrays):
        raise invalid_argument("Batching Run() input tensors must have equal 0th-dimension size")
    return len(arrays[0])


def _without_cancelled(pieces: list[_Piece]) -> list[_Piece]:
    """Return the pieces whose callers still wait; the others fail."""
    cancelled = [piece for piece in pieces if piece.task.context.is_cancelled]
    _fail(cancelled, StatusError(Code.CANCELLED, "the request was cancelled while it waited for a batch"))
    return [piece for piece in pieces if not piece.task.context.is_cancelled] if cancelled else pieces


@contextmanager
def _joined_context(pieces: list[_Piece]) -> Iterator[RequestContext]:
    """Yield the context of a batch, which ends when the last of its requests does."""
    remaining = [seconds for piece in pieces if (seconds := piece.task.context.remaining_s()) is not None]
    timeout_s = max(remaining) if len(remaining) == len(pieces) else None  # one has no limit
    if timeout_s == 0:
        raise StatusError(Code.RESOURCE_EXHAUSTED, "Run() timeout exceeded while waiting in batching queue")
    context = RequestContext(timeout_s=timeout_s)

    def leave() -> None:
        if all(piece.task.context.is_cancelled for piece in pieces):
            context.cancel()

    with ExitStack() as stack:
        for piece in pieces:
            stack.enter_context(piece.task.context.on_cancel(leave))
        yield context


def _enlarge(array: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Enlarge all dimensions but the first to `sizes`; like the real server, fill with the array's own first value."""
    empty = b"" if array.dtype == object else 0
    enlarged = np.full((len(array), *sizes), array.flat[0] if array.size else empty, array.dtype)
    enlarged[tuple(slice(size) for size in array.shape)] = array
    return enlarged


def _check_output(array: np.ndarray, count: int) -> None:
    if array.ndim == 0:
        raise StatusError(Code.FAILED_PRECONDITION, "Batched output tensor has 0 dimensions")
    if len(array) != count:
        raise StatusError(
            Code.FAILED_PRECONDITION,
            "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input "
            "tensors",
        )


def _assemble(results: Mapping[int, list[Tensor]]) -> list[Tensor]:
    """Return the outputs of a request from the results of its batches."""
    if len(results) == 1:
        return next(iter(results.values()))
    in_order = [results[start] for start in sorted(results)]
    return [
        Tensor(np.concatenate([tensor.array for tensor in tensors]), tensors[0].dtype)
        for tensors in zip(*in_order, strict=True)
    ]


def _fail(pieces: list[_Piece], error: StatusError) -> None:
    for piece in pieces:
        piece.task.error = error
