"""The command `metadata`: print a model's signatures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from savedmodel_bakery.client.commands.options import connection_options, open_client
from savedmodel_bakery.groups import Command

if TYPE_CHECKING:
    from savedmodel_bakery.client.client import BaseClient

EXAMPLES = """
\b
Examples:
  bakery metadata -m flowers
  bakery metadata -m flowers --version 2 --format REST
"""


@click.command(cls=Command, epilog=EXAMPLES)
@connection_options
@click.pass_context
def metadata(context: click.Context) -> None:
    """Print the model's signatures as JSON."""
    with open_client(context) as client:
        print_metadata(client)


def print_metadata(client: BaseClient) -> None:
    """Print the metadata of a client's model."""
    click.echo(json.dumps(client.metadata(), indent=2, sort_keys=True))
