"""Compare how long versions take to load: CPU time until they are available, memory, and the first call after it.

    python -m benchmarks.loading before=saved_model/flowers/1 after=saved_model/flowers/2

Each version is loaded in a process of its own, in a session with TensorFlow's defaults, as tensorflow_model_server
loads it: the SavedModel, then its warm-up requests. The versions take turns, so that other load affects all.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import numpy as np
import psutil

from benchmarks import machine, versions
from benchmarks.report import Row, ratio_of, spread_of

_CALLS = 20


def load(connection: Connection, folder: Path) -> None:
    """Load a version, and send the figures of a row."""
    from savedmodel_bakery.tensorflow_import import import_tensorflow
    from savedmodel_bakery.wire import messages, schema, version_folder

    tf = import_tensorflow(without=())
    tf1, started = tf.compat.v1, time.process_time()
    tf.get_logger().setLevel("ERROR")
    with tf1.Session(graph=tf.Graph()) as session:
        meta_graph = tf1.saved_model.load(session, ["serve"], str(folder))
        loaded = time.process_time()
        for record in tf1.io.tf_record_iterator(str(folder / version_folder.WARMUP)):
            log = schema.PredictionLog.FromString(record)
            if log.WhichOneof("log_type") != "predict_log":
                continue
            request = messages.read_predict_request(log.predict_log.request)
            signature = meta_graph.signature_def[log.predict_log.request.model_spec.signature_name]
            outputs = {alias: output.name for alias, output in signature.outputs.items()}
            feeds = {signature.inputs[alias].name: tensor.array for alias, tensor in request.inputs.items()}
            session.run(outputs, feeds)
        available = time.process_time()
        memory = psutil.Process().memory_info().rss / 1e6
        times = []
        for _ in range(_CALLS):
            start = time.perf_counter()
            session.run(outputs, feeds)
            times.append(time.perf_counter() - start)
    figures = {"load": loaded - started, "warm_up": available - loaded, "available": available - started}
    connection.send({**figures, "memory": memory, "first": times[0] / float(np.median(times))})


def measure(folders: dict[str, Path], rounds: int) -> dict[str, list[Row]]:
    """Return one row per round for each version."""
    context = multiprocessing.get_context("spawn")
    rows: dict[str, list[Row]] = {name: [] for name in folders}
    for number in range(rounds):
        for name, folder in folders.items():
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=load, args=(sender, folder))
            process.start()
            sender.close()
            with receiver:
                row: dict[str, Any] = receiver.recv()
            rows[name].append({"round": number, **row})
            process.join()
    return rows


def table(rows: dict[str, list[Row]]) -> str:
    """Return a Markdown table of medians; ratios are medians of the ratios to the first version per round."""
    lines = [
        "| version | load, CPU s | warm-up, CPU s | both (least–most) | ratio | memory MB | first call / median |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    first = next(iter(rows.values()))
    for name, mine in rows.items():
        spreads = {figure: spread_of(mine, figure) for figure in ("load", "warm_up", "available", "memory", "first")}
        both = spreads["available"]
        cells = [
            name,
            f"{spreads['load'].median:.2f}",
            f"{spreads['warm_up'].median:.2f}",
            f"{both.median:.2f} ({both.low:.2f}–{both.high:.2f})",
            f"{ratio_of(mine, first, 'available'):.2f}",
            f"{spreads['memory'].median:.0f}",
            f"{spreads['first'].median:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="NAME=FOLDER...", callback=versions.parse)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Loads of each version.")
def main(folders: dict[str, Path], rounds: int) -> None:
    """Compare how long versions take to load; the first is the one that the others are compared with."""
    click.echo(", ".join(f"{name} {value}" for name, value in machine.describe().items()))
    click.echo(f"{rounds} interleaved rounds, medians.\n")
    click.echo(table(measure(folders, rounds)))


if __name__ == "__main__":
    main()
