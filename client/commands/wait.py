"""The command `wait`: wait until a version of a model is AVAILABLE."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from savedmodel_bakery.client.calls import VersionStatus
from savedmodel_bakery.client.commands.options import open_client, server_options, timeout_option, version_options
from savedmodel_bakery.client.commands.status import status_line
from savedmodel_bakery.errors import (
    ConnectionFailedError,
    DeadlineExceededError,
    InvalidResponseError,
    RequestRefusedError,
    TlsHandshakeError,
)
from savedmodel_bakery.groups import Command
from savedmodel_bakery.wire.status import Code

if TYPE_CHECKING:
    from savedmodel_bakery.client.client import BaseClient

EXAMPLES = """
\b
Examples:
  bakery wait flowers
  bakery wait flowers --version 2 --timeout-seconds 60
  bakery wait flowers --label stable --format REST -t models.example

\b
Exit codes: 0 the version is AVAILABLE, 1 it is not AVAILABLE in time, 2 wrong usage, 3 cannot connect in time,
130 interrupted.
"""
_PAUSE_S = 0.2
_MIN_REQUEST_S = 1.0  # or a request shortly before the end would hide the last state behind a deadline


class _NotAvailableError(Exception):
    """The server responds, but the version is not AVAILABLE; the text is the last state."""


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("model")
@timeout_option(60.0, "How long to wait; the last request may end later.")
@server_options
@version_options(default="any")
@click.pass_context
def wait(context: click.Context, model: str, timeout_s: float) -> None:
    """Wait until a version of MODEL is AVAILABLE, and print it as `status` does.

    The server may start while the command waits.
    """
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
    click.echo(status_line(version))


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
    raise _NotAvailableError(", ".join(map(status_line, versions)) or "the server knows no version")


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
