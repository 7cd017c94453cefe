"""`python -m serving batch`: parse, run the job, print, exit."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import click

from savedmodel_bakery.client.commands.bulk import EXIT_PHOTOS_FAILED
from savedmodel_bakery.client.commands.report import one_line
from savedmodel_bakery.wire.status import Code, StatusError

EXIT_REFUSED = 1
EXIT_NO_CONNECTION = 3
EXIT_INTERRUPTED = 130

EPILOG = """
\b
Examples:
  python -m serving batch photos/ --model_name=flowers --model_base_path=/models/flowers --out rows/
  python -m serving batch '/data/*.tar' --model_name=flowers --model_base_path=/models/flowers --out /data/rows
      --ray-address=10.0.0.1:6379 --actors 8

\b
Exit codes: 0 all classified, 1 refused, 2 wrong usage, 3 no connection to Ray, 4 done, but some photos could not be
classified and their rows say why.
"""


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the command line and exit; whatever goes wrong is one line on stderr."""
    try:
        code = batch.main(arguments, prog_name="python -m serving batch", standalone_mode=False)
    except click.ClickException as exc:
        _complain(exc.format_message())
        code = exc.exit_code
    except ModuleNotFoundError as exc:
        _complain(f"the job needs {exc.name}, which is not installed; try: pip install 'savedmodel-bakery[serve,ray]'")
        code = EXIT_REFUSED
    except StatusError as exc:
        _complain(str(exc))
        code = EXIT_REFUSED
    except ConnectionError as exc:
        _complain(str(exc))
        code = EXIT_NO_CONNECTION
    except click.Abort:
        code = EXIT_INTERRUPTED
    sys.exit(code)


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, required=True, metavar="INPUT...")
@click.option("--model_name", required=True, metavar="NAME", help="Name of the model, for the rows.")
@click.option(
    "--model_base_path",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder that holds its numbered versions; the newest is used.",
)
@click.option(
    "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for the Parquet parts."
)
@click.option("--ray-address", metavar="HOST:PORT", help="A Ray cluster.  [default: Ray is started on this machine]")
@click.option("--actors", type=click.IntRange(1), default=1, show_default=True, help="How many hold the model.")
@click.option("--batch-size", type=click.IntRange(1), default=8, show_default=True, help="Most photos run at once.")
@click.pass_context
def batch(
    context: click.Context,
    paths: tuple[str, ...],
    model_name: str,
    model_base_path: Path,
    out: Path,
    ray_address: str | None,
    actors: int,
    batch_size: int,
) -> None:
    """Classify many photos on Ray, without a server: the rows of `python -m client classify`, as Parquet.

    INPUT is a photo, a folder of them, a glob, a tar or zip archive, a Parquet file with the columns image and content,
    or - for a list of paths on stdin. Inputs, model and OUT lie where every node of the cluster finds them. Started
    again, it goes on where it was; photos that have a row are not classified again.
    """
    from savedmodel_bakery.client.bulk.files import FileList
    from savedmodel_bakery.client.bulk.photos import spell
    from savedmodel_bakery.serving.bulk.parts import locked, read_parts

    files = FileList.of_arguments(paths)
    try:
        files.check()
        out.mkdir(parents=True, exist_ok=True)
        context.with_resource(locked(out))
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    except OSError as exc:
        raise click.UsageError(f"{out} cannot be written: {exc.strerror}") from exc
    done = read_parts(out, model=model_name)
    wanted = [str(file) for file in _all_files(files.without([out])) if spell(file) not in done.keys]
    if wanted:
        servable = _newest_version(model_name, model_base_path)
        with _ray(ray_address, actors=actors) as job:
            if reason := job.refusal(servable):
                raise click.ClickException(reason)
            job.run(wanted, done.keys, servable=servable, actors=actors, batch_size=batch_size, out=out.resolve())
            done = read_parts(out, model=model_name)
            if lost := job.find_lost(wanted, done.keys):
                raise click.ClickException(f"{lost} and maybe others have no row; started again, the job goes on")
    click.echo(f"{len(done.keys)} photos, {done.failed} of them could not be classified", err=True)
    context.exit(EXIT_PHOTOS_FAILED if done.failed else 0)


def _all_files(files: Iterable[Path]) -> list[Path]:
    """Each file once, also of those that Parquet files list; so no two tasks read the same photo."""
    from savedmodel_bakery.client.bulk.parquet import list_files

    is_read: dict[Path, bool] = {}
    waiting = deque(files)
    while waiting:
        file = waiting.popleft()
        if file not in is_read:
            listed = list_files(file) if file.suffix.lower() == ".parquet" else None
            is_read[file] = listed is None
            waiting.extend(listed or ())
    return [file for file in is_read if is_read[file]]


@contextmanager
def _ray(address: str | None, *, actors: int) -> Iterator[ModuleType]:
    """The job's module, with Ray joined; what goes wrong with Ray is one line."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        # Ray's way to say that it is for this machine alone: it listens on the loopback address then.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    from ray.exceptions import RayError

    from savedmodel_bakery.serving.bulk import job

    try:
        job.start_ray(address, actors=actors)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    try:
        yield job
    except RayError as exc:
        said = [line for line in str(exc).splitlines() if line.strip()] or [type(exc).__name__]
        raise click.ClickException(f"Ray gave up: {said[-1].strip()}; started again, it goes on") from exc


def _newest_version(model_name: str, model_base_path: Path) -> tuple[str, int, str]:
    from savedmodel_bakery.serving.models.storage import wanted_versions
    from savedmodel_bakery.serving.options.model_config import single_model

    found = wanted_versions(single_model(model_name, str(model_base_path.resolve()))[model_name])
    if not found:
        raise StatusError(Code.NOT_FOUND, f"there is no version of {model_name} under {model_base_path}")
    version = max(found)
    return model_name, version, str(found[version])


def _complain(message: str) -> None:
    click.echo(one_line(message), err=True)
