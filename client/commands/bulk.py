"""The command `bulk`: run a model on many photos, on a running server.

`bulk_options`, `server_options` and `run_on_server` let another program build a command that also has other engines.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click

from savedmodel_bakery.answers.photo import Photo
from savedmodel_bakery.client.commands.options import (
    BRIEF,
    connection_options,
    describe_server,
    open_client,
    select_model,
)
from savedmodel_bakery.client.commands.photo_options import icc_option
from savedmodel_bakery.exits import PHOTOS_FAILED, as_usage_error, print_error, resumable
from savedmodel_bakery.groups import Command, FloatRange, Option, option_group

EXAMPLES = """
\b
Examples:
  bakery bulk photos/ --out results.jsonl
  bakery bulk 'photos/**/*.jpg' shard-1.tar shard-2.zip --out results.parquet
  find / -name '*.jpg' | bakery bulk - --out results.csv

\b
Exit codes: 0 all photos have a result, 1 refused or failed, 2 wrong usage, 3 cannot connect, 4 finished, but some
photos failed (their rows have the reason), 130 interrupted.
"""


BULK_BRIEF = dict.fromkeys(("out", "batch_size", "all_files", "jobs", "retry_failed")) | BRIEF
"""The options that `bulk --help` shows; see `groups.Command`."""

bulk_options = option_group(
    click.argument("paths", nargs=-1, required=True, metavar="PATH..."),
    click.option(
        "--batch-size",
        type=click.IntRange(1),
        default=8,
        show_default=True,
        help="Maximum number of photos per request.",
    ),
    click.option(
        "--all-files",
        is_flag=True,
        help="From folders and archives, also take files without an image suffix such as .jpg.",
    ),
)
"""Gives a command the arguments and options of every engine except --out: `paths`, `batch_size` and `all_files`."""

server_options = option_group(
    click.option(
        "--jobs", type=click.IntRange(1, 1024), default=8, show_default=True, help="Number of concurrent requests."
    ),
    click.option(
        "--retry-seconds",
        "retry_s",
        cls=Option,
        aliases=("--retry-second",),
        type=FloatRange(0),
        default=300.0,
        show_default=True,
        help="How long to retry a request if the server is away, overloaded or too slow.",
    ),
    click.option("--retry-failed", is_flag=True, help="Send the photos again that failed in an earlier run."),
    icc_option,
)
"""Gives a command the options of the engine `server`: `jobs`, `retry_s`, `retry_failed` and `icc`."""


@click.command(cls=Command, epilog=EXAMPLES, brief=BULK_BRIEF)
@bulk_options
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the rows: .jsonl, .csv (of a classifier the best class only) or .parquet.",
)
@server_options
@connection_options
@click.pass_context
def bulk(context: click.Context, /, **options: Any) -> None:
    """Run a model on many photos and write one row per photo.

    PATH is a photo, a folder of photos, a glob, a tar or zip archive, a Parquet file with the columns image and
    content, a .csv file with the column image (paths), or - for a list of paths on stdin. Other columns of a Parquet or
    .csv file are inputs of the model beside the photo. A row has the columns of the model's task, such as the best
    classes, or the reason why the photo could not be read. If the command is interrupted, run it again: it continues
    with the photos that have no row yet.
    """
    context.exit(run_on_server(context, **options))


def _read_in_srgb(photo: Photo) -> bytes:
    from savedmodel_bakery.answers.images import to_srgb

    return to_srgb(photo.read())


def run_on_server(
    context: click.Context,
    paths: tuple[str, ...],
    out: Path,
    *,
    jobs: int,
    batch_size: int,
    all_files: bool,
    retry_s: float,
    retry_failed: bool,
    icc: bool,
) -> int:
    """Send photos to the server of the connection options, write the rows, and return the exit code."""
    from savedmodel_bakery.answers.images import encode_images
    from savedmodel_bakery.answers.other_inputs import IMAGE, other_inputs
    from savedmodel_bakery.answers.photo_files import FileList, check_parquet_files, open_file
    from savedmodel_bakery.answers.signatures import read_signatures
    from savedmodel_bakery.answers.tasks import find_task
    from savedmodel_bakery.client.bulk.job import Job, Progress
    from savedmodel_bakery.client.bulk.results import Results, ResultsError

    files = FileList.from_arguments(paths, all_files=all_files)
    with resumable(context), ExitStack() as stack:
        try:
            with as_usage_error(ValueError, ResultsError):
                files.check()
                check_parquet_files(files.named())
                model = context.obj["model"]
                if context.obj["transport"] != "amqp":
                    model = select_model(context, describe_server(context))
                results = stack.enter_context(Results(out, model=model, retry_failed=retry_failed))
        except OSError as exc:
            raise click.UsageError(f"{out} cannot be written: {exc.strerror}") from exc
        files = files.without(results.files)
        photos = (photo for file in files for photo in open_file(file, results.is_new, all_files=all_files))
        if icc:
            photos = (replace(photo, read=partial(_read_in_srgb, photo)) for photo in photos)
        if (first := next(photos, None)) is None:
            hint = "" if all_files else "; --all-files takes files without an image suffix too"
            reason = f"all {results.rows} photos have a row" if results.rows else f"no photo in {' '.join(paths)}{hint}"
            print_error(f"nothing to do: {reason}")
        else:
            clients = [stack.enter_context(open_client(context)) for _ in range(jobs)]
            signatures = read_signatures(clients[0].metadata())
            task, signature = find_task(signatures, context.obj["signature"])
            declared = signatures.find(signature)
            others = other_inputs(declared.inputs) if IMAGE in declared.inputs else {}
            replace(declared, optional=frozenset(others)).fit(encode_images([b""]))  # it must take images
            if missing := sorted(others.keys() - first.columns.keys()):
                raise click.UsageError(
                    f"the model takes {', '.join(missing)} beside the photo: pass a .csv or .parquet file with the "
                    f"columns image, {', '.join(others)}"
                )
            with as_usage_error(ResultsError):
                results.check_task(task.name)
            job = Job(
                clients,
                model=model,
                task=task,
                signature=signature,
                others=others,
                batch_size=batch_size,
                retry_s=retry_s,
            )
            progress = stack.enter_context(Progress(files, all_files=all_files, done=results.rows))
            for rows in job.run(chain([first], photos)):
                results.add(rows)
                progress.add(len(rows), failed=results.failed)
            progress.finish()
        results.finish()
    if not results.failed:
        return 0
    print_error(f"{results.failed} of {results.rows} photos failed; their rows have the reason")
    return PHOTOS_FAILED
