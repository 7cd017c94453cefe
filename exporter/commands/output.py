"""The place of a new version: a local folder of models, or one in a bucket, to which it is uploaded after the bake."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click

from savedmodel_bakery.exits import print_error
from savedmodel_bakery.exporter.commands.running import print_progress
from savedmodel_bakery.interrupts import cleaning_up, interrupt_on_termination
from savedmodel_bakery.storage import folders, publish
from savedmodel_bakery.storage.store import Store


def open_output(out: Path | Store, name: str, version: int | None) -> tuple[Path, Callable[[Path], object]]:
    """Check that a version is free; return the folder of models to bake it into, and what moves it to its final place.

    That is a function of its folder, which returns the final place. A temporary folder exists until the command ends.
    """
    if isinstance(out, Path):
        folders.check_free(out / name, version)
        return out, lambda path: path
    base = out.below(name)
    publish.check_free(base, version)
    root = click.get_current_context().with_resource(_temporary_folder())
    return root, partial(_upload, base, version)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="bakery-"))
    with cleaning_up(partial(shutil.rmtree, folder, ignore_errors=True)):  # also if the process is ended by a signal
        yield folder


def _upload(base: Store, version: int | None, path: Path) -> Store:
    """Publish a version; if that fails, keep it, because the bake may have taken long."""
    try:
        with interrupt_on_termination():
            if version is None:
                return publish.publish_next(path, base, progress=print_progress)
            return publish.publish(path, base, version, progress=print_progress)
    except BaseException:
        kept = Path(tempfile.mkdtemp(prefix=f"{base.name}-")) / path.name
        path.rename(kept)
        command = shlex.join(["bakery", "publish", str(kept), base.url])
        print_error(f"the new version is kept in {kept}; to publish it, run: {command} --version NUMBER")
        raise
