"""`bakery ask`: sends photos to a running server, or runs the model itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from savedmodel_bakery.client.commands.ask import ASK_BRIEF, EXAMPLES, HELP, ask_options, run_ask
from savedmodel_bakery.client.commands.options import open_client
from savedmodel_bakery.exits import as_usage_error
from savedmodel_bakery.groups import Command, reject_options

if TYPE_CHECKING:
    from savedmodel_bakery.client.client import BaseClient

_LOCAL_EXAMPLE = "  bakery ask --local saved_model/flowers tulip.jpg\n"
_FOR_LOCAL = {"signature", "version", "label", "help"}
"""The common options that apply to --local."""


@click.command(
    cls=Command,
    help=HELP,
    epilog=EXAMPLES.replace("\n\n", f"\n{_LOCAL_EXAMPLE}\n", 1),
    brief={**ASK_BRIEF, "local": "Run the model in FOLDER in this process, without a server."},
)
@ask_options
@click.option(
    "--local",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Run the model in FOLDER, which has its versions or is one, in this process, without a server. Needs the "
    "extra serve.",
)
@click.pass_context
def ask(context: click.Context, /, local: Path | None, **options: Any) -> None:
    """Run `ask` on the server of the connection options, or on the model in a folder."""

    def connect(context: click.Context) -> BaseClient:
        return open_client(context) if local is None else _open_local(context, local)

    if local is not None:
        reject_options(context, "--local", _applies_to_local)
    context.exit(run_ask(context, connect, **options))


def _open_local(context: click.Context, folder: Path) -> BaseClient:
    from savedmodel_bakery.client.client import Client
    from savedmodel_bakery.local_transport import LocalTransport

    with as_usage_error(ValueError):
        transport = LocalTransport(folder)
        context.obj["model"] = transport.model
        return Client(transport=transport, version=context.obj["version"], label=context.obj["label"])


def _applies_to_local(option: click.Parameter) -> bool:
    is_of_servers = getattr(option, "is_common", False) or option.name == "result_queue"
    return not is_of_servers or option.name in _FOR_LOCAL
