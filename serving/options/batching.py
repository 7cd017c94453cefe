"""How requests are joined: a text BatchingParameters, with tensorflow_model_server's defaults and refusals."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from savedmodel_bakery.serving.options import text_format as text_files
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import invalid_argument

FILE_IN_VERSION = "batching_params.pbtxt"
"""What a version's folder calls its own parameters, with `--enable_per_model_batching_parameters`."""

_MOST = 2**31 - 1
_MOST_THREADS = 2**16  # as of other flags


@dataclass(frozen=True)
class BatchingParameters:
    """When a batch is full, and how long it may wait to become so.

    Attributes:
        max_batch_size: most rows in a batch, and in a request.
        batch_timeout_micros: microseconds that a batch which isn't full waits for more.
        max_enqueued_batches: batches that may wait in the queue of one set of inputs and outputs.
        num_batch_threads: batches that run at the same time.
        thread_pool_name: the label of metrics; empty unless given.
        allowed_batch_sizes: rows that a batch may have, padding included; empty is any number.
        pad_variable_length_inputs: whether tensors grow to the largest of their batch, beyond the first dimension too.
        enable_large_batch_splitting: whether a request may be spread over several batches.
        max_execution_batch_size: most rows in a batch where requests are split.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = 0
    thread_pool_name: str = ""
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False
    enable_large_batch_splitting: bool = False
    max_execution_batch_size: int = 0

    def __post_init__(self) -> None:
        # Defaults that depend on the machine or on other parameters.
        if not self.num_batch_threads:
            object.__setattr__(self, "num_batch_threads", os.cpu_count() or 1)
        if not (self.enable_large_batch_splitting and self.max_execution_batch_size):
            object.__setattr__(self, "max_execution_batch_size", self.max_batch_size)


def read(path: Path) -> BatchingParameters:
    """Read a file.

    Raises:
        StatusError: it is missing, no text protobuf, or has parameters out of range.
    """
    return of_message(text_files.read(path, schema.BatchingParameters))


def of_message(message: Any) -> BatchingParameters:
    """Parameters of a BatchingParameters message, whose fields that are not set have their defaults.

    Raises:
        StatusError: INVALID_ARGUMENT for a number out of range; `check_sizes` looks for contradictions.
    """
    given: dict[str, Any] = {
        field.name: value if field.is_repeated or field.message_type is None else value.value
        for field, value in message.ListFields()
    }
    for name, least, most in (
        ("num_batch_threads", 1, _MOST_THREADS),
        ("max_batch_size", 1, _MOST),
        ("max_execution_batch_size", 1, _MOST),
        ("batch_timeout_micros", 0, _MOST),
        ("max_enqueued_batches", 0, _MOST),
    ):
        if name in given and given[name] < least:
            raise invalid_argument(f"{name} must be {'positive' if least else 'non-negative'}; was {given[name]}")
        if name in given and given[name] > most:
            raise invalid_argument(f"{name} is {given[name]}; allowed are up to {most}")
    given["allowed_batch_sizes"] = tuple(given.get("allowed_batch_sizes", ()))
    return BatchingParameters(**given)


def check_sizes(parameters: BatchingParameters) -> None:
    """Refuse sizes that contradict each other; the real server finds them when it loads a model.

    Raises:
        StatusError: INVALID_ARGUMENT.
    """
    sizes, largest = parameters.allowed_batch_sizes, parameters.max_execution_batch_size
    if largest > parameters.max_batch_size:
        raise invalid_argument(
            f"max_execution_batch_size must not exceed max_batch_size; was {largest}, with {parameters.max_batch_size}"
        )
    if sizes and sizes[-1] != largest:
        name = "max_execution_batch_size" if parameters.enable_large_batch_splitting else "max_batch_size"
        raise invalid_argument(
            f"Last entry in allowed_batch_sizes must match {name}; last entry was {sizes[-1]}; expected {largest}"
        )
    if any(left >= right for left, right in pairwise((0, *sizes))):
        listed = ", ".join(map(str, sizes))
        raise invalid_argument(
            f"allowed_batch_sizes entries must be positive and monotonically increasing; were {listed}"
        )
