"""The commands `publish`, `pull` and `package`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.exits import as_usage_error, print_error, resumable
from savedmodel_bakery.groups import Command, FloatRange, reject_options
from savedmodel_bakery.interrupts import interrupt_on_termination
from savedmodel_bakery.wire.version_folder import version_number

_PUBLISH_EXAMPLES = """\b
Examples:
  bakery publish saved_model/flowers/2 s3://bucket/models/flowers
  bakery publish saved_model/flowers/2 gs://bucket/models/flowers --version 7
"""
_PULL_EXAMPLES = """\b
Examples:
  bakery pull s3://bucket/models/flowers/2 saved_model/flowers
  bakery pull s3://bucket/models/flowers saved_model/flowers
  bakery pull s3://bucket/models/flowers saved_model/flowers --watch 30
"""
_PACKAGE_EXAMPLES = """\b
Examples:
  bakery package saved_model/flowers/2 --for sagemaker --out model.tar.gz
  bakery package saved_model/flowers --for sagemaker --out model.tar.gz
"""


@click.command(cls=Command, epilog=_PUBLISH_EXAMPLES)
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("url", metavar="URL")
@click.option("--version", "number", type=click.IntRange(0), help="Number to publish it as.  [default: FOLDER's name]")
@click.option(
    "--restart",
    is_flag=True,
    help="First remove what an unfinished upload of other files of this version left. It must not be running any more.",
)
@click.pass_context
def publish(context: click.Context, folder: Path, url: str, number: int | None, restart: bool) -> None:
    """Publish the version in FOLDER below URL, the folder of a model's versions in a bucket.

    FOLDER may be that of a model too, for its newest version.

    saved_model.pb is written last, after the sizes and digests of all other files were checked. If the command is cut
    off, run it again: it continues. Versions are never overwritten. Prints the URL of the version.

    Credentials are those of the service's other programs, such as aws or gcloud.
    """
    from savedmodel_bakery.storage import publish as steps
    from savedmodel_bakery.storage.folders import find_version
    from savedmodel_bakery.storage.store import open_store

    with as_usage_error(ValueError):
        base = open_store(url)
    if version_number(base.name) is not None:
        raise click.UsageError(
            f"{base} ends with a number: pass the URL of a model, such as s3://bucket/models/flowers"
        )
    folder = find_version(folder)
    if number is None:
        number = version_number(folder.resolve().name)
    if number is None:
        raise click.UsageError(f"the name of {folder} is not a number: pass the folder of a version, or --version")
    with _interruptible(context):
        _print_progress(f"listing {base}")
        click.echo(steps.publish(folder, base, number, restart=restart, progress=_print_progress))


@click.command(cls=Command, epilog=_PULL_EXAMPLES)
@click.argument("url", metavar="URL")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--watch",
    "interval_s",
    type=FloatRange(0.1),
    metavar="SECONDS",
    help="Go on: look so often for newer versions, pull them, and remove the copies of older ones, until interrupted.",
)
@click.option(
    "--latest",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="With --watch, how many of the newest versions to keep in FOLDER.",
)
@click.pass_context
def pull(context: click.Context, url: str, folder: Path, interval_s: float | None, latest: int) -> None:
    """Copy a version to FOLDER, the local folder of a model's versions, as FOLDER/NUMBER.

    URL is that of a version in a bucket, or of a model, for its newest complete version. The copy appears when it is
    complete and agrees with the version's manifest; one that is there already is only checked. Prints its path.

    With --watch, FOLDER follows the bucket: a version that is removed there is removed here, after the one that is the
    newest then was pulled. Folders that are not copies are kept.
    """
    from savedmodel_bakery.storage import pull as steps
    from savedmodel_bakery.storage.mirror import watch
    from savedmodel_bakery.storage.store import open_store

    with as_usage_error(ValueError):
        store = open_store(url)
    if interval_s is None:
        reject_options(context, "a single copy", lambda parameter: parameter.name != "latest")
    elif version_number(store.name) is not None:
        raise click.UsageError(f"{store} ends with a number: --watch takes the URL of a model")
    with _interruptible(context):
        _print_progress(f"listing {store}")
        if interval_s is not None:
            watch(
                store,
                folder,
                interval_s=interval_s,
                latest=latest,
                progress=_print_progress,
                on_pull=click.echo,
                on_error=lambda error: print_error(f"error: {error}"),
            )
        click.echo(steps.pull(steps.find_version(store), folder, progress=_print_progress))


@click.command(cls=Command, epilog=_PACKAGE_EXAMPLES)
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--for", "cloud", type=click.Choice(["sagemaker"]), required=True, help="Whose layout the archive has.")
@click.option("--name", show_default="the name of the model's folder", help="Name of the model.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default="model.tar.gz",
    show_default=True,
    help="File to write; an existing one is replaced.",
)
def package(folder: Path, cloud: str, name: str | None, out: Path) -> None:  # noqa: ARG001 - there is one layout
    """Write the version in FOLDER as an archive for a managed cloud.

    FOLDER may be that of a model too, for its newest version. The archive for sagemaker is a tar.gz file with
    NAME/NUMBER/saved_model.pb and the other files; equal versions give equal archives. Prints the path of the archive.
    """
    from savedmodel_bakery.storage import package as steps
    from savedmodel_bakery.storage.folders import check_name, find_version

    folder = find_version(folder).resolve()
    number = version_number(folder.name)
    if number is None:
        raise click.UsageError(f"the name of {folder} is not a number: pass the folder of a version, such as MODEL/1")
    with as_usage_error(PublishError):
        name = check_name(folder.parent.name if name is None else name)
    with interrupt_on_termination():
        click.echo(steps.package(folder, name, number, out))


@contextmanager
def _interruptible(context: click.Context) -> Iterator[None]:
    with resumable(context), interrupt_on_termination():
        yield


def _print_progress(step: str) -> None:
    click.echo(f"{step} …", err=True)
