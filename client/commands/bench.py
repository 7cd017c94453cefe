"""`python -m client bench`: parse, put load on, print, exit. Heavy imports stand inside functions."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from savedmodel_bakery.client.commands.inputs import read_arrays, read_file
from savedmodel_bakery.client.commands.options import connection_options, image_option

if TYPE_CHECKING:
    from savedmodel_bakery.client.load.generator import Load, Plan
    from savedmodel_bakery.client.load.target import Target

EXIT_FAILED = 1
DEFAULT_DURATION_S = 10.0
MAX_CALLERS = 1000


@click.command("bench")
@connection_options
@image_option("Image to send; repeatable, they are sent in turn.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Images in a request.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE",
    help="Arrays to send instead of images, as for predict. Repeatable.",
)
@click.option(
    "--callers",
    multiple=True,
    default=[8],
    show_default=True,
    type=click.IntRange(1, MAX_CALLERS),
    help="Calls at the same time; repeatable, one load after the other.",
)
@click.option(
    "--duration",
    "duration_s",
    type=click.FloatRange(0, 86_400, min_open=True),
    help=f"Seconds of each load.  [default: {DEFAULT_DURATION_S:g}, unless --requests says how much]",
)
@click.option("--requests", type=click.IntRange(1), help="Requests of each load, at most.")
@click.option(
    "--rate",
    "rate_per_s",
    type=click.FloatRange(0, 1e6, min_open=True),
    help="Requests a second, sent when they are due whatever the answers do; latency counts from then. "
    "[default: each caller sends the next when it is answered]",
)
@click.option(
    "--expect",
    multiple=True,
    metavar="LABEL|FILE",
    help="What the answers must be: an image's label, one for all or one each; of arrays an npz or JSON file of "
    "outputs.  [default: what the first answer says]",
)
@click.option(
    "--atol",
    type=click.FloatRange(0),
    default=1e-4,
    show_default=True,
    help="How far numbers with a fraction may be off.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a load instead of the table.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the loads (PNG, SVG, PDF).")
@click.pass_context
def bench(
    context: click.Context,
    images: tuple[str, ...],
    batch: int,
    inputs: tuple[str, ...],
    callers: tuple[int, ...],
    duration_s: float | None,
    requests: int | None,
    rate_per_s: float | None,
    expect: tuple[str, ...],
    atol: float,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Put load on a model server, check every answer, and print how fast it was.

    Every answer must be equal to the first one to the same question, or to --expect. Nothing is tried again. Each
    caller makes one call that doesn't count before a load begins. Exits with 1 where a call failed or an answer
    was wrong.
    """
    from savedmodel_bakery.client.load import generator, report

    if bool(images) == bool(inputs):
        raise click.UsageError("give what to send: either images with -i or arrays with --input")
    if duration_s is None and requests is None:
        duration_s = DEFAULT_DURATION_S
    if plot:
        _check_plot(plot)
    target = _open_target(context.obj, atol)
    try:
        if images:
            _learn_images(target, images, batch, expect)
        else:
            _learn_arrays(target, inputs, expect)
    except generator.CallFailedError as exc:
        click.echo(exc.message, err=True)
        context.exit(EXIT_FAILED)
    loads = [_load(target, generator.Plan(number, duration_s, requests, rate_per_s)) for number in callers]
    summaries = [report.summary(load, images=batch if images else None) for load in loads]
    click.echo("\n".join(map(json.dumps, summaries)) if as_json else report.table(summaries))
    for remark in report.remarks(loads):
        click.echo(" ".join(remark.split()), err=True)
    if plot:
        _plot(plot, loads)
    context.exit(EXIT_FAILED if any(load.errors for load in loads) else 0)


def _open_target(asked: dict[str, Any], atol: float) -> Target:
    from savedmodel_bakery.client.calls import ModelSpec
    from savedmodel_bakery.client.client import open_transport
    from savedmodel_bakery.client.load.target import Target
    from savedmodel_bakery.client.transports.transport import PreparedTransport

    if asked["transport"] == "amqp":
        raise click.UsageError("--format AMQP was given; bench asks over GRPC or REST")
    port = asked["port"] if asked["transport"] == "grpc" else asked["rest_api_port"]

    def connect() -> PreparedTransport:
        return open_transport(
            asked["transport"], asked["target"], port=port, timeout_s=asked["timeout_s"], for_load=True
        )

    try:
        connect().close()
        spec = ModelSpec(asked["model"], asked["version"], asked["label"])
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    return Target(connect, spec, signature=asked["signature"], atol=atol)


def _learn_images(target: Target, images: tuple[str, ...], batch: int, expect: tuple[str, ...]) -> None:
    """Make questions in which the images follow each other in turn."""
    from savedmodel_bakery.client.images import encode_images

    if len(expect) not in (0, 1, len(images)):
        raise click.UsageError(f"--expect was given {len(expect)} times; once for all images, or once for each")
    labels = expect * len(images) if len(expect) == 1 else expect
    contents = [read_file(image, "image") for image in images]
    for first in range(0, math.lcm(len(images), batch), batch):
        places = [(first + place) % len(images) for place in range(batch)]
        wanted = [labels[place] for place in places] if labels else None
        target.learn_images(encode_images([contents[place] for place in places]), wanted)


def _learn_arrays(target: Target, inputs: tuple[str, ...], expect: tuple[str, ...]) -> None:
    from savedmodel_bakery.client.commands.array_files import read_input
    from savedmodel_bakery.wire import trees

    if len(expect) > 1:
        raise click.UsageError(f"--expect was given {len(expect)} times; arrays make one question")
    tree = read_arrays(inputs)
    try:
        expected = [read_input(None, read_file(file, "expected answer"), file) for file in expect]
        target.learn(tree, dict(trees.flatten(expected[0])) if expected else None)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc


def _load(target: Target, plan: Plan) -> Load:
    from savedmodel_bakery.client.load import generator

    with _progress(f"{plan.callers} callers") as tell:
        return generator.generate(target.open_caller, plan, progress=tell)


@contextmanager
def _progress(label: str) -> Iterator[Any]:
    """A bar on stderr, where that is a terminal; told the part that is done."""
    steps = 1000
    with click.progressbar(length=steps, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        yield lambda part: bar.update(round(part * steps) - bar.pos)


def _check_plot(path: Path) -> None:
    from savedmodel_bakery.client.load import plot

    try:
        plot.check(path)
    except plot.PlotError as exc:
        raise click.UsageError(str(exc)) from exc


def _plot(path: Path, loads: list[Load]) -> None:
    from savedmodel_bakery.client.load import plot

    plot.write(path, loads)
    click.echo(path, err=True)
