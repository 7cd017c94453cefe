"""Measures how much faster a quantised network is than the same network in float32, on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.tensor_types import ConcreteFunction, NormalisedBatch

BATCH_SIZES = (1, 8)
_ROUNDS = 9
_MIN_ROUNDS = 3
_MAX_SECONDS = 4.0


@dataclass(frozen=True)
class Speed:
    """The median time of both networks for a batch of one size, in milliseconds per image."""

    batch: int
    float32_ms: float
    int8_ms: float

    @property
    def ratio(self) -> float:
        """How many times as fast as float32 the quantised network is."""
        return self.float32_ms / self.int8_ms


def compare_speed(float32: ConcreteFunction, int8: ConcreteFunction, image: np.ndarray) -> list[Speed]:
    """Run two networks in turns, and return their times for each of `BATCH_SIZES`.

    Args:
        float32: the network.
        int8: the quantised network.
        image: normalised, float32 [height, width, channels].
    """
    return [_compare(float32, int8, tf.constant(np.stack([image] * batch))) for batch in BATCH_SIZES]


def _compare(float32: ConcreteFunction, int8: ConcreteFunction, batch: NormalisedBatch) -> Speed:
    images = len(batch)
    times: list[tuple[float, float]] = []
    for network in (float32, int8):
        _run_ms(network, batch)  # prepares it
    end = time.monotonic() + _MAX_SECONDS
    while len(times) < _MIN_ROUNDS or (len(times) < _ROUNDS and time.monotonic() < end):
        times.append((_run_ms(float32, batch), _run_ms(int8, batch)))
    float32_ms, int8_ms = np.median(times, axis=0) / images
    return Speed(images, float(float32_ms), float(int8_ms))


def _run_ms(network: ConcreteFunction, batch: NormalisedBatch) -> float:
    start = time.perf_counter()
    for output in tf.nest.flatten(network(batch)):
        output.numpy()  # waits for it
    return (time.perf_counter() - start) * 1e3
