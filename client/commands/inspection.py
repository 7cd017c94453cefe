"""The commands that inspect a server: `metadata`, `status`, `wait` and `check`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from savedmodel_bakery.client.calls import VersionStatus
from savedmodel_bakery.client.commands.options import (
    BRIEF,
    connection_options,
    is_set,
    open_client,
    server_options,
    timeout_option,
    version_options,
)
from savedmodel_bakery.client.servers import find_transport
from savedmodel_bakery.errors import (
    ConnectionFailedError,
    DeadlineExceededError,
    InvalidResponseError,
    RequestRefusedError,
    TlsHandshakeError,
    one_line,
)
from savedmodel_bakery.exits import FAILED, as_usage_error, print_error
from savedmodel_bakery.groups import Command
from savedmodel_bakery.storage.arguments import FolderOrUrl
from savedmodel_bakery.storage.store import Store
from savedmodel_bakery.wire.status import Code

if TYPE_CHECKING:
    from savedmodel_bakery.client.client import BaseClient

METADATA_EXAMPLES = """
\b
Examples:
  bakery metadata -m flowers
  bakery metadata -m flowers --version 2 --format REST
"""
STATUS_EXAMPLES = """
\b
Examples:
  bakery status -m flowers
  bakery status -m flowers --version 2 --json
"""
WAIT_EXAMPLES = """
\b
Examples:
  bakery wait flowers
  bakery wait flowers --version 2 --timeout-seconds 120
  bakery wait flowers --label stable --format REST -t models.example

\b
Exit codes: 0 the version is AVAILABLE, 1 it is not AVAILABLE in time, 2 wrong usage, 3 cannot connect in time,
130 interrupted.
"""
CHECK_EXAMPLES = """
\b
Examples:
  bakery check saved_model/flowers
  bakery check saved_model/flowers/1 --format GRPC -t models.example --json

\b
Exit codes: 0 all responses agree, 1 a response differs or was refused, 2 wrong usage, 3 cannot connect,
130 interrupted.
"""
_WAIT_BRIEF = {"timeout_s": None, **BRIEF, "version": None, "label": None}
del _WAIT_BRIEF["model"]  # an argument
_PAUSE_S = 0.2
_MIN_REQUEST_S = 1.0  # or a request shortly before the end would hide the last state behind a deadline


class _NotAvailableError(Exception):
    """The server responds, but the version is not AVAILABLE; the text is the last state."""


@click.command(cls=Command, epilog=METADATA_EXAMPLES, brief=BRIEF)
@connection_options
@click.pass_context
def metadata(context: click.Context) -> None:
    """Print the model's signatures as JSON."""
    with open_client(context) as client:
        print_metadata(client)


def print_metadata(client: BaseClient) -> None:
    """Print the metadata of a client's model."""
    click.echo(json.dumps(client.metadata(), indent=2, sort_keys=True))


@click.command(cls=Command, epilog=STATUS_EXAMPLES, brief={"as_json": None} | BRIEF)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per version.")
@connection_options
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Print the state of each version of the model, newest first.

    Each line has the version number and its state, and the error if it could not be loaded.
    """
    with open_client(context) as client:
        for version in client.status():
            fields = {"version": version.version, "state": version.state}
            fields |= {"code": version.code.name, "message": version.message}
            click.echo(json.dumps(fields, ensure_ascii=False) if as_json else _status_line(version))


def _status_line(status: VersionStatus) -> str:
    """Return the version number or -, its state, and the error if it could not be loaded, separated by tabs."""
    line = f"{'-' if status.version is None else status.version}\t{status.state}"
    return line if status.code is Code.OK else f"{line}\t{one_line(f'{status.code.name}: {status.message}')}"


@click.command(cls=Command, epilog=WAIT_EXAMPLES, brief=_WAIT_BRIEF)
@click.argument("model", required=False)
@click.option(
    "-m", "--model", "named", metavar="NAME", envvar="BAKERY_CLIENT_MODEL", show_envvar=True, help="In place of MODEL."
)
@timeout_option(60.0, "How long to wait; the last request may end later.")
@server_options
@version_options(default="any")
@click.pass_context
def wait(context: click.Context, model: str | None, named: str | None, timeout_s: float) -> None:
    """Wait until a version of MODEL is AVAILABLE, and print it as `status` does.

    The server may start while the command waits.
    """
    if model and is_set(context, "named", [ParameterSource.COMMANDLINE]):
        raise click.UsageError(f"two models, {model} and {named}: pass MODEL or -m MODEL")
    model = model or named
    if not model:
        raise click.UsageError("missing MODEL, the name of the model to wait for")
    end = time.monotonic() + timeout_s
    while True:
        try:
            version = _find_available(context, model, max(end - time.monotonic(), _MIN_REQUEST_S))
            break
        except TlsHandshakeError:
            raise
        except _NotAvailableError as exc:
            if time.monotonic() + _PAUSE_S >= end:
                message = f"{_describe(context, model)} is not AVAILABLE after {timeout_s:g} s: {exc}"
                raise click.ClickException(message) from exc
        except (ConnectionFailedError, DeadlineExceededError):
            if time.monotonic() + _PAUSE_S >= end:
                raise
        time.sleep(_PAUSE_S)
    click.echo(_status_line(version))


def _find_available(context: click.Context, model: str, timeout_s: float) -> VersionStatus:
    """Return the newest AVAILABLE version that the options select, or raise _NotAvailableError."""
    expected = [Code.NOT_FOUND, Code.UNAVAILABLE]
    label = context.obj["label"]
    if label is not None:
        expected.append(Code.INVALID_ARGUMENT)  # the code for an unknown label
    with open_client(context, model=model, timeout_s=timeout_s) as client:
        try:
            if label is not None:  # a status request ignores the label
                return VersionStatus(_resolve_label(client), "AVAILABLE", Code.OK, "")
            versions = client.status()
        except RequestRefusedError as exc:
            if exc.code not in expected and exc.retry_after_s is None:
                raise
            raise _NotAvailableError(str(exc)) from exc
    for version_status in versions:
        if version_status.state == "AVAILABLE":
            return version_status
    raise _NotAvailableError(", ".join(map(_status_line, versions)) or "the server knows no version")


def _resolve_label(client: BaseClient) -> int:
    """Return the version that the client's label names; the server only responds if it is AVAILABLE."""
    from savedmodel_bakery.answers.signatures import read_signatures

    version = read_signatures(client.metadata()).version
    if version is None:
        raise InvalidResponseError("the metadata contain no version")
    return version


def _describe(context: click.Context, model: str) -> str:
    version, label = context.obj["version"], context.obj["label"]
    if version is not None:
        return f'model "{model}" version {version}'
    return f'model "{model}"' if label is None else f'model "{model}" label "{label}"'


@click.command(cls=Command, epilog=CHECK_EXAMPLES, brief={"as_json": None} | BRIEF)
@click.argument("folder", type=FolderOrUrl(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per request.")
@connection_options
@click.pass_context
def check(context: click.Context, folder: Path | Store, as_json: bool) -> None:
    """Check that a server responds as when the version was baked.

    FOLDER is that of a baked version, or of a model, whose newest version is taken, or the URL of one in a bucket. The
    goldens of the version are sent to the server. Uses both gRPC and REST unless --format or the target's scheme
    selects one; the v2 protocol has no Classify and Regress, so their goldens are left out. The default model is the
    one that was baked, and the default version is the name of the version's folder.
    """
    from savedmodel_bakery.client.goldens import GoldensError, read_goldens, replay
    from savedmodel_bakery.storage.versions import find_version

    version = find_version(folder)
    with as_usage_error(GoldensError):
        goldens = read_goldens(version)
    overrides: dict[str, Any] = {} if is_set(context, "model") else {"model": goldens.model}
    folder_name = version.resolve().name if isinstance(version, Path) else version.name
    if not is_set(context, "version") and not is_set(context, "label") and folder_name.isdecimal():
        overrides["version"] = int(folder_name)
    if is_set(context, "transport"):
        transports = [context.obj["transport"]]
    else:
        with as_usage_error(ValueError):
            transport = find_transport(context.obj["target"])
        transports = [transport] if transport else ["grpc", "rest"]
    differing = total = 0
    for transport in transports:
        with open_client(context, transport=transport, **overrides) as client:
            for golden in goldens.requests:
                if golden.has_examples and transport in ("v2", "v2-grpc"):
                    continue
                differences = replay(golden, client, goldens.tolerances)
                total += 1
                differing += bool(differences)
                fields = {"transport": transport, "signature": golden.signature, "number": golden.number}
                if as_json:
                    fields |= {"agrees": not differences, "differences": differences}
                    click.echo(json.dumps(fields, ensure_ascii=False))
                else:
                    result = one_line("; ".join(differences)) if differences else "agrees"
                    click.echo("\t".join([*map(str, fields.values()), result]))
    print_error(f"{total - differing} of {total} responses agree")
    context.exit(FAILED if differing else 0)
