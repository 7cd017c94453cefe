"""`bakery bulk --engine ray`: its options, and a function that runs the job and prints a summary."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import click

from savedmodel_bakery.exits import PHOTOS_FAILED, as_usage_error, resumable
from savedmodel_bakery.extras import naming_extras
from savedmodel_bakery.groups import option_group
from savedmodel_bakery.serving.commands.metrics_page import metrics_options, serve_page
from savedmodel_bakery.wire.model_config import ModelConfig
from savedmodel_bakery.wire.status import Code, StatusError

RAY_OPTIONS = {"model_base_path", "model_name", "ray_address", "actors", "metrics_port", "metrics_address"}

ray_options = option_group(
    click.option(
        "--model-base-path",
        type=click.Path(path_type=Path),
        help="Folder of the model's versions, of which the newest is used, or of one version. Required for Ray.",
    ),
    click.option(
        "--model-name", metavar="NAME", help="Name of the model in the rows.  [default: the name of its base path]"
    ),
    click.option(
        "--ray-address", metavar="HOST:PORT", help="Ray cluster to use.  [default: start Ray on this machine]"
    ),
    click.option(
        "--actors", type=click.IntRange(1), default=1, show_default=True, help="Ray workers that load the model."
    ),
    metrics_options,
)
"""Gives a command the options of the engine `ray`, whose names are in `RAY_OPTIONS`."""


@naming_extras("bulk --engine ray", "serve", "ray")
def run_on_ray(
    context: click.Context,
    paths: tuple[str, ...],
    out: Path,
    *,
    model_base_path: Path | None,
    model_name: str | None,
    ray_address: str | None,
    actors: int,
    metrics_port: int | None,
    metrics_address: str,
    batch_size: int,
    all_files: bool,
) -> int:
    """Run a model that Ray's workers load on photos, write the rows to a folder, and return the exit code."""
    if model_base_path is None:
        raise click.UsageError("Ray needs the model: pass --model-base-path")
    from savedmodel_bakery.answers.photo import path_key
    from savedmodel_bakery.answers.photo_files import FileList, check_parquet_files
    from savedmodel_bakery.serving.bulk.classifier import read_task
    from savedmodel_bakery.serving.bulk.parts import check_task, lock_folder, publish_progress, read_parts
    from savedmodel_bakery.serving.models.storage import find_model

    with as_usage_error(ValueError):
        model = find_model(model_base_path, model_name)
    files = FileList.from_arguments(paths, all_files=all_files)
    try:
        files.check()
        check_parquet_files(files.named())
        out.mkdir(parents=True, exist_ok=True)
        context.with_resource(lock_folder(out))
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    except OSError as exc:
        raise click.UsageError(f"cannot write to {out}: {exc.strerror}") from exc
    done = read_parts(out, model=model.name)
    pending = [file for file in _expand(files.without([out])) if path_key(file) not in done.keys]
    if metrics_port is not None:
        serve_page(metrics_address, metrics_port)
        publish_progress(out, pending, done.keys, all_files=all_files)
    if pending:
        _import_ray(ray_address)  # if it is missing, that is said before the version is read
        names = list(map(str, pending))
        version = _newest_version(model)
        check_task(out, done.task, read_task(*version))
        with resumable(context), _ray_job(ray_address, actors=actors) as job:
            job.run(
                names,
                done.keys,
                version=version,
                all_files=all_files,
                actors=actors,
                batch_size=batch_size,
                out=out.resolve(),
            )
            done = read_parts(out, model=model.name)
            if missing := job.find_missing(names, done.keys, all_files=all_files):
                raise click.ClickException(
                    f"{missing} and possibly other photos have no row; run the job again to classify them"
                )
    click.echo(f"{len(done.keys)} photos, {done.failed} of them failed", err=True)
    return PHOTOS_FAILED if done.failed else 0


def _expand(files: Iterable[Path]) -> list[Path]:
    """Return each file once, including those listed in Parquet files, so that no two tasks read the same photo."""
    from savedmodel_bakery.answers.parquet import list_files

    is_input: dict[Path, bool] = {}
    queue = deque(files)
    while queue:
        file = queue.popleft()
        if file not in is_input:
            listed = list_files(file) if file.suffix.lower() == ".parquet" else None
            is_input[file] = listed is None
            queue.extend(listed or ())
    return [file for file in is_input if is_input[file]]


def _import_ray(address: str | None) -> None:
    """Import Ray with our settings, which it reads when it is imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        # This setting makes Ray listen on the loopback address only.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray  # noqa: F401


@contextmanager
def _ray_job(address: str | None, *, actors: int) -> Iterator[ModuleType]:
    """Connect to Ray or start it, and yield the job's module; Ray's errors become one line."""
    from ray.exceptions import RayError

    from savedmodel_bakery.serving.bulk import job

    try:
        job.start_ray(address, actors=actors)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    try:
        yield job
    except RayError as exc:
        lines = [line.strip() for line in str(exc).splitlines() if line.strip()] or [type(exc).__name__]
        raise click.ClickException(f"Ray failed: {lines[-1]}; run the job again to continue") from exc


def _newest_version(model: ModelConfig) -> tuple[str, int, str]:
    from savedmodel_bakery.serving.models.storage import wanted_versions

    versions = wanted_versions(model)
    if not versions:
        raise StatusError(Code.NOT_FOUND, f"no version of {model.name} found under {model.base_path}")
    number = max(versions)
    return model.name, number, str(versions[number])
