"""Measures a baked version in a TensorFlow Session of its own process: devices, overlap, and memory of the GPU."""

from __future__ import annotations

import multiprocessing
import re
import statistics
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import machine

DECODING, NETWORK, BOTH = "preprocess", "pixels", "top_k"
"""Signatures that only decode photos, only run the network, and do both, in turns of `--rows-per-run` photos."""

_DEVICE = re.compile(r"task:\d+/device:([A-Z]+:\d+)$")  # not the streams of a GPU, which repeat its operations


def measure(folder: Path, photo: bytes, *, images: int, rounds: int, allow_growth: bool) -> dict[str, Any]:
    """Measure a version in a new process, which gives the GPU's memory back when it ends.

    Args:
        folder: the folder of the version.
        photo: an encoded photo.
        images: the number of copies of the photo in a request.
        rounds: requests of each signature.
        allow_growth: whether TensorFlow takes the GPU's memory as needed, instead of nearly all of it.

    Returns:
        `operations`: the operations of a request that does both, by device.
        `ms`: the median time of a request, by signature.
        `gpu_memory_mib`: what all processes use on the GPU before this one and after its requests; None without a GPU.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(_measure, folder, photo, images, rounds, allow_growth).result()


def _measure(folder: Path, photo: bytes, images: int, rounds: int, allow_growth: bool) -> dict[str, Any]:
    import tensorflow as tf

    before = _memory_mib()
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = allow_growth
    with tf.compat.v1.Session(graph=tf.Graph(), config=config) as session:
        signatures = tf.compat.v1.saved_model.load(session, [tf.saved_model.SERVING], str(folder)).signature_def

        def run(signature: str, value: Any, **options: Any) -> dict[str, Any]:
            (placeholder,) = signatures[signature].inputs.values()
            fetches = {alias: info.name for alias, info in signatures[signature].outputs.items()}
            outputs: dict[str, Any] = session.run(fetches, {placeholder.name: value}, **options)
            return outputs

        photos = [photo] * images
        pixels = run(DECODING, photos)["pixels"].round().astype("uint8")
        inputs = {DECODING: photos, NETWORK: pixels, BOTH: photos}
        for signature, value in inputs.items():
            run(signature, value)
        trace = tf.compat.v1.RunMetadata()
        full = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
        run(BOTH, photos, options=full, run_metadata=trace)
        times_ms = defaultdict(list)
        for _ in range(rounds):
            for signature, value in inputs.items():
                start_s = time.perf_counter()
                run(signature, value)
                times_ms[signature].append((time.perf_counter() - start_s) * 1e3)
        return {
            "operations": _operations(trace),
            "ms": {signature: statistics.median(times) for signature, times in times_ms.items()},
            "gpu_memory_mib": None if before is None else [before, _memory_mib()],
        }


def _operations(trace: Any) -> dict[str, int]:
    """Return the number of operations that ran on each device; those in loops count once."""
    counts = {}
    for device in trace.step_stats.dev_stats:
        if match := _DEVICE.search(device.device):
            counts[match[1]] = len({node.node_name for node in device.node_stats})
    return counts


def _memory_mib() -> float | None:
    used = machine.query_gpu("memory.used")
    return None if used is None else float(used)


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return a Markdown table with a line per measurement.

    `hidden` is the part of the shorter of decoding and network that a request does while the longer one runs.
    """
    lines = [
        "| memory | operations | decoding, ms | network, ms | both, ms | hidden | GPU memory before and after, MiB |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, row in rows.items():
        operations = ", ".join(f"{count} on {device}" for device, count in sorted(row["operations"].items()))
        decoding, network, both = (row["ms"][signature] for signature in (DECODING, NETWORK, BOTH))
        hidden = (decoding + network - both) / min(decoding, network)
        memory = (
            "no GPU" if row["gpu_memory_mib"] is None else " → ".join(f"{mib:.0f}" for mib in row["gpu_memory_mib"])
        )
        lines.append(
            f"| {name} | {operations} | {decoding:.1f} | {network:.1f} | {both:.1f} | {hidden:.0%} | {memory} |"
        )
    return "\n".join(lines)
