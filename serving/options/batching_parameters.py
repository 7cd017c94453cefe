"""Batching parameters, read from a text BatchingParameters; defaults and errors are tensorflow_model_server's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from savedmodel_bakery.serving.options.text_format import read_message
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import invalid_argument

FILE_IN_VERSION = "batching_params.pbtxt"
"""File name of a version's own parameters, read with `--enable_per_model_batching_parameters`."""

_MAX_VALUE = 2**31 - 1
_MAX_THREADS = 2**16  # the same limit as for the flags that set threads


@dataclass(frozen=True)
class BatchingParameters:
    """When a batch is full, and how long it may wait for more requests."""

    max_batch_size: int = 1000  # maximum rows in a batch, and in a request
    batch_timeout_micros: int = 0  # how long a batch that isn't full waits for more requests, in microseconds
    max_enqueued_batches: int = 10  # maximum batches waiting in the queue of one combination of inputs and outputs
    num_batch_threads: int = 0  # maximum batches running at the same time; 0 means one per CPU
    thread_pool_name: str = ""  # label of the batching metrics
    allowed_batch_sizes: tuple[int, ...] = ()  # row counts that batches are padded to; empty means any number
    # whether tensors are padded to the largest in their batch in every dimension
    pad_variable_length_inputs: bool = False
    enable_large_batch_splitting: bool = False  # whether a request may be split over several batches
    max_execution_batch_size: int = 0  # maximum rows in a batch when requests are split; 0 means `max_batch_size`

    def __post_init__(self) -> None:
        # Defaults that depend on the machine or on other parameters.
        if not self.num_batch_threads:
            object.__setattr__(self, "num_batch_threads", os.cpu_count() or 1)
        if not (self.enable_large_batch_splitting and self.max_execution_batch_size):
            object.__setattr__(self, "max_execution_batch_size", self.max_batch_size)


def read_batching_parameters(path: Path) -> BatchingParameters:
    """Read a text BatchingParameters file; fields that aren't set get their defaults. Does not `check_sizes`."""
    message = read_message(path, schema.BatchingParameters)
    fields: dict[str, Any] = {
        field.name: value if field.is_repeated or field.message_type is None else value.value
        for field, value in message.ListFields()
    }
    for name, minimum, maximum in (
        ("num_batch_threads", 1, _MAX_THREADS),
        ("max_batch_size", 1, _MAX_VALUE),
        ("max_execution_batch_size", 1, _MAX_VALUE),
        ("batch_timeout_micros", 0, _MAX_VALUE),
        ("max_enqueued_batches", 0, _MAX_VALUE),
    ):
        if name in fields and fields[name] < minimum:
            raise invalid_argument(f"{name} must be {'positive' if minimum else 'non-negative'}; was {fields[name]}")
        if name in fields and fields[name] > maximum:
            raise invalid_argument(f"invalid {name} {fields[name]}: must be at most {maximum}")
    fields["allowed_batch_sizes"] = tuple(fields.get("allowed_batch_sizes", ()))
    return BatchingParameters(**fields)


def check_sizes(parameters: BatchingParameters) -> None:
    """Reject sizes that contradict each other, as the real server does when it loads a model, and in its words."""
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
        raise invalid_argument(
            "allowed_batch_sizes entries must be positive and monotonically increasing; were "
            + ", ".join(map(str, sizes))
        )
