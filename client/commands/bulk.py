"""`python -m client classify`: parse, run the job, exit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path

import click

from savedmodel_bakery.client.commands.options import connection_options, open_client

EXIT_PHOTOS_FAILED = 4

EPILOG = """
\b
Examples:
  python -m client classify photos/ --out results.jsonl
  python -m client classify 'photos/**/*.jpg' shard-1.tar shard-2.zip --out results.parquet
  find / -name '*.jpg' | python -m client classify - --out results.csv

\b
Exit codes: 0 all classified, 1 refused, 2 wrong usage, 3 no connection, 4 done, but some photos could not be
classified and their rows say why.
"""


@click.command("classify", epilog=EPILOG)
@connection_options
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the rows: .jsonl, .csv (the best class alone) or .parquet.",
)
@click.option("--jobs", type=click.IntRange(1, 1024), default=8, show_default=True, help="Requests open at once.")
@click.option("--batch-size", type=click.IntRange(1), default=8, show_default=True, help="Most photos of a request.")
@click.option(
    "--retry_second",
    "retry_s",
    type=click.FloatRange(0),
    default=300.0,
    show_default=True,
    help="How long what met no server, a busy one, or no answer in time, is asked again.",
)
@click.option(
    "--retry-failed", is_flag=True, help="Ask again about photos that have a row, but could not be classified."
)
@click.pass_context
def classify(
    context: click.Context,
    paths: tuple[str, ...],
    out: Path,
    jobs: int,
    batch_size: int,
    retry_s: float,
    retry_failed: bool,
) -> None:
    """Classify many photos: a row each, with the best classes or the reason why not.

    PATH is a photo, a folder of them, a glob, a tar or zip archive, a Parquet file with the columns image and content,
    or - for a list of paths on stdin. Started again, it goes on where it was; photos that have a row are not asked
    about again.
    """
    from savedmodel_bakery.client.bulk.files import FileList
    from savedmodel_bakery.client.bulk.job import Job
    from savedmodel_bakery.client.bulk.photos import open_file
    from savedmodel_bakery.client.bulk.progress import Progress
    from savedmodel_bakery.client.bulk.results import Results, WrongResults
    from savedmodel_bakery.client.images import DEFAULT_SIGNATURE, TOP_K_SIGNATURE

    asked = context.obj
    signature = TOP_K_SIGNATURE if asked["signature"] == DEFAULT_SIGNATURE else asked["signature"]
    files = FileList.of_arguments(paths)
    with _naming_extra(), ExitStack() as stack:
        try:
            files.check()
            results = stack.enter_context(Results(out, model=asked["model"], retry_failed=retry_failed))
        except (ValueError, WrongResults) as exc:
            raise click.UsageError(str(exc)) from exc
        except OSError as exc:
            raise click.UsageError(f"{out} cannot be written: {exc.strerror}") from exc
        files = files.without(results.files)
        photos = (photo for file in files for photo in open_file(file, results.is_new))
        if (first := next(photos, None)) is None:
            reason = f"all {results.rows} photos have a row" if results.rows else f"no photo is in {' '.join(paths)}"
            click.echo(f"nothing to do: {reason}", err=True)
        else:
            clients = [stack.enter_context(open_client(context)) for _ in range(jobs)]
            job = Job(clients, model=asked["model"], signature=signature, batch_size=batch_size, retry_s=retry_s)
            job.check()
            progress = stack.enter_context(Progress(files, done=results.rows))
            for rows in job.run(chain([first], photos)):
                results.add(rows)
                progress.add(len(rows), failed=results.failed)
            progress.finish()
        results.finish()
    if results.failed:
        click.echo(f"{results.failed} of {results.rows} photos could not be classified; their rows say why", err=True)
    context.exit(EXIT_PHOTOS_FAILED if results.failed else 0)


@contextmanager
def _naming_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as exc:
        raise click.UsageError(
            f"Parquet needs {exc.name}, which is not installed; try: pip install 'savedmodel-bakery[parquet]'"
        ) from exc
