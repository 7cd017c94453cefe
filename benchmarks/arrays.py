"""What an array costs on its way: raw bytes in a tensor, the same as base64 in JSON, and as JSON numbers.

    python -m benchmarks.arrays [--megabytes N] [--rounds N]

Counts the bytes of a request, and the CPU time of writing it and of reading it back to an array; no network takes part.
The three take turns; the table has medians over the rounds.
"""

from __future__ import annotations

import base64
import json
import statistics
import time
from collections.abc import Callable

import click
import numpy as np

from savedmodel_bakery.wire import dtypes, schema
from savedmodel_bakery.wire.attachments import TensorMessage, parse_message
from savedmodel_bakery.wire.json import columns as columns_json


def write_raw(array: np.ndarray) -> bytes:
    """A PredictRequest, as the client writes it."""
    message = TensorMessage(schema.PredictRequest(), "inputs")
    message.add("x", array, packed=True)
    return message.SerializeToString()


def read_raw(content: bytes) -> np.ndarray:
    """The array, as the server reads it."""
    return np.array(parse_message(schema.PredictRequest, "inputs", content).arrays()["x"])


def write_base64(array: np.ndarray) -> bytes:
    """What a request has to be where arrays are put into strings."""
    return json.dumps({"inputs": {"x": {"b64": base64.b64encode(array.tobytes()).decode()}}}).encode()


def read_base64(content: bytes) -> np.ndarray:
    """The values, without their shape, which such a request doesn't tell."""
    return np.array(np.frombuffer(base64.b64decode(json.loads(content)["inputs"]["x"]["b64"]), np.float64))


def write_numbers(array: np.ndarray) -> bytes:
    """The REST API's request, as the client writes it."""
    return columns_json.encode_request({"x": array}, "serving_default")


def read_numbers(content: bytes) -> np.ndarray:
    """The array, as the client reads answers."""
    answer = content.replace(b'"inputs":{"x":', b'"outputs":', 1)[:-1]  # which has a single output bare
    return columns_json.decode_answer(answer, {"x": dtypes.BY_NAME["double"]})["x"]


WAYS: dict[str, tuple[Callable[[np.ndarray], bytes], Callable[[bytes], np.ndarray]]] = {
    "raw bytes": (write_raw, read_raw),
    "base64": (write_base64, read_base64),
    "JSON numbers": (write_numbers, read_numbers),
}


@click.command()
@click.option("--megabytes", default=25, show_default=True, type=click.IntRange(1, 200), help="Size of the array.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Rounds.")
def main(megabytes: int, rounds: int) -> None:
    """Measure, and print a table."""
    array = np.random.default_rng(0).random((megabytes, 125, 1000))
    rows: dict[str, list[tuple[int, float, float]]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, (write, read) in WAYS.items():
            started = time.process_time()
            content = write(array)
            written = time.process_time()
            found = read(content)
            ended = time.process_time()
            if not np.array_equal(found.ravel(), array.ravel()):
                raise SystemExit(f"{name}: what was read is not what was written")
            rows[name].append((len(content), written - started, ended - written))
    click.echo(f"{f'{megabytes} MB of float64':32}{'MB sent':>9}{'write CPU ms':>14}{'read CPU ms':>13}{'CPU':>8}")
    raw = rows["raw bytes"]
    for name, taken in rows.items():
        size, writing, reading = (statistics.median(column) for column in zip(*taken, strict=True))
        ratio = statistics.median((a[1] + a[2]) / (b[1] + b[2]) for a, b in zip(taken, raw, strict=True))
        click.echo(f"{name:32}{size / 1e6:9.1f}{writing * 1e3:14.1f}{reading * 1e3:13.1f}{ratio:7.1f}x")


if __name__ == "__main__":
    main()
