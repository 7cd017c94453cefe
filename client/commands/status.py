"""The command `status`: print the state of a model's versions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from savedmodel_bakery.client.commands.options import connection_options, open_client
from savedmodel_bakery.errors import one_line
from savedmodel_bakery.groups import Command
from savedmodel_bakery.wire.status import Code

if TYPE_CHECKING:
    from savedmodel_bakery.client.calls import VersionStatus

EXAMPLES = """
\b
Examples:
  bakery status -m flowers
  bakery status -m flowers --version 2 --json
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per version.")
@connection_options
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Print the state of each version of the model, newest first.

    Each line has the version number and its state, and the error if it could not be loaded.
    """
    with open_client(context) as client:
        for version in client.status():
            click.echo(_json(version) if as_json else status_line(version))


def status_line(status: VersionStatus) -> str:
    """Return the version number or -, its state, and the error if it could not be loaded, separated by tabs."""
    line = f"{'-' if status.version is None else status.version}\t{status.state}"
    return line if status.code is Code.OK else f"{line}\t{one_line(f'{status.code.name}: {status.message}')}"


def _json(status: VersionStatus) -> str:
    fields = {"version": status.version, "state": status.state, "code": status.code.name, "message": status.message}
    return json.dumps(fields, ensure_ascii=False)
