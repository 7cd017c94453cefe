"""`bakery bulk`: runs a model on many photos, on a running server or on Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from savedmodel_bakery import tracing
from savedmodel_bakery.client.commands.bulk import BULK_BRIEF, bulk_options, run_on_server, server_options
from savedmodel_bakery.client.commands.options import connection_options
from savedmodel_bakery.groups import Command, reject_options
from savedmodel_bakery.serving.commands.bulk import RAY_OPTIONS, ray_options, run_on_ray

EXAMPLES = """
\b
Examples:
  bakery bulk photos/ --out results.jsonl
  bakery bulk 'photos/**/*.jpg' shard-1.tar shard-2.zip --out results.parquet
  find / -name '*.jpg' | bakery bulk - --out results.csv
  bakery bulk photos/ --engine ray --model-base-path saved_model/flowers --out rows/

\b
Exit codes: 0 all photos have a result, 1 refused or failed, 2 wrong usage, 3 cannot connect, 4 finished but some
photos failed (their rows have the reason), 130 interrupted.
"""
_RAY_BRIEF = {"engine": None, "model_base_path": None}
_ALL_ENGINES = {"paths", "engine", "out", "batch_size", "all_files"}


@click.command(cls=Command, epilog=EXAMPLES, brief=BULK_BRIEF | _RAY_BRIEF)
@bulk_options
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="Engine server: file for the rows, .jsonl, .csv (of a classifier the best class only) or .parquet. Engine "
    "ray: folder for Parquet files.",
)
@click.option(
    "--engine",
    type=click.Choice(["server", "ray"]),
    default="server",
    show_default=True,
    help="Send photos to a running model server, or use Ray, whose workers load the model.",
)
@server_options
@ray_options
@connection_options
@click.pass_context
def bulk(context: click.Context, /, engine: str, paths: tuple[str, ...], out: Path, **options: Any) -> None:
    """Run a model on many photos and write one row per photo.

    PATH is a photo, a folder of photos, a glob, a tar or zip archive, a Parquet file with the columns image and
    content, or - for a list of paths on stdin. A row has the columns of the model's task, such as the best classes, or
    the reason why the photo could not be read. If the command is interrupted, run it again: it continues with the
    photos that have no row yet.

    The connection options, --jobs and the --retry options are for the engine server.
    """
    reject_options(context, f"--engine {engine}", lambda option: _is_for(engine, option.name or ""))
    if engine == "server" and out.is_dir():
        raise click.UsageError(f"--out {out} is a folder; --engine server writes a file")
    own = {name: value for name, value in options.items() if _is_for(engine, name)}
    with tracing.span("bulk", "INTERNAL", {"bakery.bulk.engine": engine}):
        code = (run_on_ray if engine == "ray" else run_on_server)(context, paths, out, **own)
    context.exit(code)


def _is_for(engine: str, option: str) -> bool:
    return option in _ALL_ENGINES or (option in RAY_OPTIONS) == (engine == "ray")
