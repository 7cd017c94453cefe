"""Compare versions of baked classifiers: the CPU time of a call, and memory.

    python -m benchmarks.versions plain=saved_model/flowers/1 optimised=saved_model/flowers/2

Each version is loaded in a process of its own, without a server, in a session with TensorFlow's defaults: threads and
memory are those of tensorflow_model_server. The processes take turns, so that other load on the machine affects all.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import numpy as np
import psutil

from benchmarks import machine, photos
from benchmarks.report import Row, ratio_of, spread_of

SIGNATURES = ("top_k", "pixels")


def serve(connection: Connection, folder: Path, photo: bytes) -> None:
    """Load a version and send the process's memory in MB; then time calls on request, until the connection closes.

    A request is the name of a signature and a number of calls; the reply is the CPU time of a call in ms.
    """
    from savedmodel_bakery.serving import warmup
    from savedmodel_bakery.serving.admission.context import RequestContext
    from savedmodel_bakery.serving.inference.predict import PredictCall, predict
    from savedmodel_bakery.serving.models.loading import LoadOptions, load
    from savedmodel_bakery.wire import dtypes
    from savedmodel_bakery.wire.tensors import Tensor

    servable = load("version", 1, folder, LoadOptions(warm_up=warmup.replay))
    shape = [dim.size for dim in servable.signatures["pixels"].inputs["pixels"].tensor_shape.dim]
    calls = {
        "top_k": PredictCall("top_k", {"image": Tensor(np.array([photo], object), dtypes.STRING)}),
        "pixels": PredictCall(
            "pixels", {"pixels": Tensor(np.zeros([1, *shape[1:]], np.uint8), dtypes.BY_NAME["uint8"])}
        ),
    }
    for call in calls.values():
        predict(servable, call, RequestContext())
    connection.send(psutil.Process().memory_info().rss / 1e6)
    while True:
        try:
            signature, count = connection.recv()
        except EOFError:
            return
        before_s = time.process_time()
        for _ in range(count):
            predict(servable, calls[signature], RequestContext())
        connection.send((time.process_time() - before_s) / count * 1e3)


def measure(versions: dict[str, Path], photo: bytes, *, rounds: int, calls: int) -> dict[str, list[Row]]:
    """Return one row per round for each version, with the CPU ms of a call of each signature and the memory in MB."""
    context = multiprocessing.get_context("spawn")
    rows: dict[str, list[Row]] = {name: [] for name in versions}
    with ExitStack() as stack:
        connections = {}
        for name, folder in versions.items():
            connections[name], other = context.Pipe()
            process = context.Process(target=serve, args=(other, folder, photo))
            process.start()
            other.close()
            stack.callback(process.join)
            stack.enter_context(connections[name])
        memory = {name: connection.recv() for name, connection in connections.items()}
        names = list(versions)
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:  # no version is always first
                row: dict[str, Any] = {"round": number, "memory": memory[name]}
                for signature in SIGNATURES:
                    connections[name].send((signature, calls))
                    row[signature] = connections[name].recv()
                rows[name].append(row)
    return rows


def table(rows: dict[str, list[Row]]) -> str:
    """Return a Markdown table of medians; ratios are medians of the ratios to the first version per round."""
    lines = [
        "| version | `top_k`, CPU ms (least–most) | ratio | `pixels`, CPU ms (least–most) | ratio | memory MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    first = next(iter(rows.values()))
    for name, mine in rows.items():
        cells = [name]
        for signature in SIGNATURES:
            spread = spread_of(mine, signature)
            cells += [
                f"{spread.median:.1f} ({spread.low:.1f}–{spread.high:.1f})",
                f"{ratio_of(mine, first, signature):.2f}",
            ]
        lines.append(f"| {' | '.join(cells)} | {mine[0]['memory']:.0f} |")
    return "\n".join(lines)


def parse(_context: click.Context, _argument: click.Parameter, values: Sequence[str]) -> dict[str, Path]:
    """Return the folders of versions by name."""
    versions = {name: Path(folder) for name, _, folder in (value.partition("=") for value in values)}
    for name, folder in versions.items():
        if not (folder / "saved_model.pb").is_file():
            raise click.BadParameter(f"{name}={folder}: must be NAME=FOLDER, where FOLDER is a version")
    return versions


@click.command()
@click.argument("versions", nargs=-1, required=True, metavar="NAME=FOLDER...", callback=parse)
@click.option("--photo", type=click.Choice(list(photos.SIZES)), default="small", show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=12, show_default=True, help="Turns of each version.")
@click.option("--calls", type=click.IntRange(1), default=10, show_default=True, help="Calls per turn and signature.")
def main(versions: dict[str, Path], photo: str, rounds: int, calls: int) -> None:
    """Compare versions of baked classifiers; the first is the one that the others are compared with."""
    click.echo(", ".join(f"{name} {value}" for name, value in machine.describe().items()))
    width, height = photos.SIZES[photo]
    click.echo(f"A JPEG of {width}×{height}; {rounds} interleaved rounds of {calls} calls, medians.\n")
    click.echo(table(measure(versions, photos.make(photo), rounds=rounds, calls=calls)))


if __name__ == "__main__":
    main()
