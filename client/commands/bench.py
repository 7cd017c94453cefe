"""The command `bench`: measure throughput and latency of a server, and check every response."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from savedmodel_bakery.client.commands.options import BRIEF, connection_options, describe_server, select_model
from savedmodel_bakery.client.commands.other_inputs import read_inputs
from savedmodel_bakery.client.commands.photo_options import PhotoPath, image_option
from savedmodel_bakery.client.commands.predict import read_arrays, read_file
from savedmodel_bakery.exits import FAILED, as_usage_error, print_error
from savedmodel_bakery.groups import Command, FloatRange, Option

if TYPE_CHECKING:
    from savedmodel_bakery.client.load.generator import Load, Plan
    from savedmodel_bakery.client.load.target import Target

DEFAULT_DURATION_S = 10.0
MAX_CALLERS = 1000

EXAMPLES = """
\b
Examples:
  bakery bench horse.jpg
  bakery bench --callers 1 --callers 8 --duration-seconds 30 horse.jpg cat.png --plot load.png
  bakery bench --rate 50 --expect espresso coffee.png
  bakery bench -m add_ten --input x=array.npy --requests 1000 --json
  bakery bench -m prices --input 'rooms=[3, 1]' --input city=Bath house.jpg

\b
Exit codes: 0 all responses were correct, 1 a request failed or a response was wrong, 2 wrong usage, 3 cannot connect,
130 interrupted.
"""
_BRIEF = (
    dict.fromkeys(("inputs", "batch_size", "callers", "duration_s", "requests", "rate_per_s", "as_json", "plot_file"))
    | BRIEF
)


@click.command(cls=Command, epilog=EXAMPLES, brief=_BRIEF)
@click.argument("photos", nargs=-1, metavar="[PHOTO]...", type=PhotoPath())
@image_option("A photo, as an alternative to PHOTO; repeatable.")
@click.option(
    "--batch-size",
    cls=Option,
    aliases=("--batch",),
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Photos per request.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE|JSON",
    help="Arrays to send instead of photos, as for `predict`; with photos, another input of the model, as for `ask`. "
    "Repeatable.",
)
@click.option(
    "--callers",
    multiple=True,
    default=[8],
    show_default=True,
    type=click.IntRange(1, MAX_CALLERS),
    help="Number of concurrent callers; several are measured one after the other. Repeatable.",
)
@click.option(
    "--duration-seconds",
    "duration_s",
    cls=Option,
    aliases=("--duration",),
    type=FloatRange(0, 86_400, min_open=True),
    show_default=f"{DEFAULT_DURATION_S:g}, or no limit with --requests",
    help="Duration of each load.",
)
@click.option("--requests", type=click.IntRange(1), help="Maximum number of requests of each load.")
@click.option(
    "--rate",
    "rate_per_s",
    type=FloatRange(0, 1e6, min_open=True),
    show_default="each caller sends its next request when it has a response",
    help="Requests per second, whether or not responses arrive; latency counts from when a request was due.",
)
@click.option(
    "--expect",
    multiple=True,
    metavar="LABEL|FILE",
    show_default="the first response",
    help="Expected response: a photo's label, one for all photos or one per photo; for arrays, an npz or JSON file of "
    "outputs.",
)
@click.option(
    "--atol",
    type=FloatRange(0),
    default=1e-4,
    show_default=True,
    help="Absolute tolerance of numbers with a fraction.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per load instead of the table.")
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for a plot of the loads (PNG, SVG, PDF).",
)
@connection_options
@click.pass_context
def bench(
    context: click.Context,
    photos: tuple[str, ...],
    images: tuple[str, ...],
    batch_size: int,
    inputs: tuple[str, ...],
    callers: tuple[int, ...],
    duration_s: float | None,
    requests: int | None,
    rate_per_s: float | None,
    expect: tuple[str, ...],
    atol: float,
    as_json: bool,
    plot_file: Path | None,
) -> None:
    """Measure the throughput and latency of a model server.

    PHOTO is an image file to send; several are sent in turn. Checks every response: it must equal the first one to the
    same request, or --expect. Requests are not retried. Before a load starts, each caller sends one request that is not
    measured.
    """
    from savedmodel_bakery.client.load import generator, report

    images = (*images, *photos)
    if not images and not inputs:
        raise click.UsageError("pass what to send: either photos as arguments or arrays with --input")
    if duration_s is None and requests is None:
        duration_s = DEFAULT_DURATION_S
    if plot_file:
        with as_usage_error(ValueError):
            report.check_plot(plot_file)
    target = _open_target(context, atol)
    try:
        if images:
            _add_images(target, images, batch_size, inputs, expect)
        else:
            _add_arrays(target, inputs, expect)
    except generator.CallFailedError as exc:
        raise click.ClickException(exc.message) from exc
    loads = [_load(target, generator.Plan(number, duration_s, requests, rate_per_s)) for number in callers]
    summaries = [report.summary(load, images=batch_size if images else None) for load in loads]
    click.echo("\n".join(map(json.dumps, summaries)) if as_json else report.table(summaries))
    for remark in report.remarks(loads):
        print_error(remark)
    if plot_file:
        report.write_plot(plot_file, loads)
        click.echo(plot_file, err=True)
    context.exit(FAILED if any(load.errors for load in loads) else 0)


def _open_target(context: click.Context, atol: float) -> Target:
    from savedmodel_bakery.client.calls import ModelSpec
    from savedmodel_bakery.client.load.target import Target
    from savedmodel_bakery.client.transports import create_transport
    from savedmodel_bakery.client.transports.transport import ServerTransport

    options = context.obj
    if options["transport"] == "amqp":
        raise click.UsageError("invalid --format AMQP: bench supports GRPC, REST, V2 and V2-GRPC")
    server = describe_server(context)

    def connect() -> ServerTransport:
        return create_transport(server, timeout_s=options["timeout_s"], for_load=True)

    with as_usage_error(ValueError):
        connect().close()
        spec = ModelSpec(select_model(context, server), options["version"], options["label"])
    return Target(connect, spec, signature=options["signature"], atol=atol)


def _add_images(
    target: Target, images: tuple[str, ...], batch_size: int, inputs: tuple[str, ...], expect: tuple[str, ...]
) -> None:
    """Add requests of `batch_size` images that take the images, each with its other inputs, in turn."""
    import numpy as np

    from savedmodel_bakery.answers.images import encode_images

    if len(expect) not in (0, 1, len(images)):
        raise click.UsageError(f"--expect was given {len(expect)} times: pass it once, or once per photo")
    labels = expect * len(images) if len(expect) == 1 else expect
    rows = [encode_images([read_file(image, "photo")]) for image in images]
    if inputs:
        others = read_inputs(inputs, target.other_inputs(), len(images))
        rows = [row | values for row, values in zip(rows, others, strict=True)]
    for first in range(0, math.lcm(len(images), batch_size), batch_size):
        places = [(first + place) % len(images) for place in range(batch_size)]
        expected = [labels[place] for place in places] if labels else None
        batch = {alias: np.concatenate([rows[place][alias] for place in places]) for alias in rows[0]}
        target.add_images(batch, expected)


def _add_arrays(target: Target, inputs: tuple[str, ...], expect: tuple[str, ...]) -> None:
    from savedmodel_bakery.client.commands.array_files import read_input
    from savedmodel_bakery.wire import trees

    if len(expect) > 1:
        raise click.UsageError(f"--expect was given {len(expect)} times: pass it once for arrays")
    arrays = read_arrays(inputs)
    with as_usage_error(ValueError):
        expected = [read_input(None, read_file(file, "expected response"), file) for file in expect]
        target.add(arrays, dict(trees.flatten(expected[0])) if expected else None)


def _load(target: Target, plan: Plan) -> Load:
    """Generate a load; show a progress bar if stderr is a terminal."""
    from savedmodel_bakery.client.load.generator import generate

    steps, label = 1000, f"{plan.callers} callers"
    with click.progressbar(length=steps, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        return generate(
            target.open_caller, plan, progress=lambda fraction: bar.update(round(fraction * steps) - bar.pos)
        )
