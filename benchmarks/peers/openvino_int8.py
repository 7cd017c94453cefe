"""Quantises a network with OpenVINO's NNCF, and prints its times, and those of it as it was, as JSON.

    python openvino_int8.py SAVED_MODEL IMAGES.npy [transformer]

Runs in an environment of its own, without TensorFlow, on one thread. The images are float32 [images, height, width,
channels]. What is not quantised, OpenVINO computes in bfloat16 where the CPU can.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import nncf
import numpy as np
import openvino

_ONE_THREAD = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
_ROUNDS = 15


def time_ms(core: Any, model: Any, images: np.ndarray) -> float:
    """Return the median time of a run, in ms per image."""
    model.reshape(list(images.shape))
    request = core.compile_model(model, "CPU", _ONE_THREAD).create_infer_request()
    request.infer([images])
    times = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        request.infer([images])
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e3 / len(images)


def main(saved_model: str, file: str, *kind: str) -> None:
    """Print the times by precision and size of the batch."""
    images = np.load(file)
    core = openvino.Core()
    model = core.read_model(saved_model)
    model.reshape([1, *images.shape[1:]])  # a network may leave its size open
    options = {"model_type": nncf.ModelType.TRANSFORMER} if kind else {}
    dataset = nncf.Dataset([image[np.newaxis] for image in images])
    quantised = nncf.quantize(model, dataset, subset_size=len(images), **options)
    times = {
        precision: {batch: time_ms(core, each, images[:batch]) for batch in (1, 8)}
        for precision, each in (("float", model), ("int8", quantised))
    }
    print(json.dumps(times))


if __name__ == "__main__":
    main(*sys.argv[1:])
