"""`bakery serve`, which serves one model on the loopback address, and `bakery model-server`."""

from __future__ import annotations

import logging
import socket
import threading
from functools import partial
from pathlib import Path
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from savedmodel_bakery import log
from savedmodel_bakery.exits import as_usage_error
from savedmodel_bakery.groups import Option
from savedmodel_bakery.storage.arguments import FolderOrUrl
from savedmodel_bakery.storage.store import Store
from savedmodel_bakery.tensorflow_import import show_log
from savedmodel_bakery.wire.status import StatusError

ADDRESS = "127.0.0.1"
_PORT = click.IntRange(1, 65535)
_PRINT_S = 1.0

EXAMPLES = """
\b
Examples:
  bakery serve saved_model/flowers
  bakery serve saved_model/flowers --port 9500 --rest-api-port 9501 --name blooms
  bakery serve s3://bucket/models/flowers
"""


@click.command(epilog=EXAMPLES)
@click.argument("folder", metavar="FOLDER|URL", type=FolderOrUrl(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--name",
    cls=Option,
    aliases=("-m", "--model", "--model-name"),
    metavar="NAME",
    show_default="the folder's name",
    help="Name to serve the model under.",
)
@click.option("--port", type=_PORT, default=8500, show_default=True, help="gRPC port.")
@click.option("--rest-api-port", type=_PORT, default=8501, show_default=True, help="REST port.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Name beside localhost and 127.0.0.1 that REST requests may use for this machine, as of a proxy. Repeatable.",
)
@click.option(
    "--playground/--no-playground", default=True, show_default=True, help="Serve a page to try the model in a browser."
)
@click.option(
    "--model-cache-dir",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    show_default="~/.cache/savedmodel-bakery/models",
    help="Folder for the copies of versions at a URL.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show the log of TensorFlow.")
def serve(
    folder: Path | Store,
    name: str | None,
    port: int,
    rest_api_port: int,
    allowed_hosts: tuple[str, ...],
    playground: bool,
    model_cache_dir: str | None,
    verbose: bool,
) -> None:
    """Serve the model in FOLDER, or at a URL such as s3://bucket/models/flowers, until Ctrl-C.

    FOLDER contains the model's numbered versions, of which the newest is served, and new ones as they are published;
    or it is the folder of one version; a URL likewise. The server listens on 127.0.0.1 only and prints its URLs when it
    is ready. For other settings use `bakery model-server`.
    """
    from savedmodel_bakery.serving.models import buckets, storage

    with as_usage_error(ValueError):
        if isinstance(folder, Store):
            click.echo(f"listing {folder} …", err=True)
            model = buckets.find_model(folder, name)
        else:
            model = storage.find_model(folder, name)
    name = model.name
    if not name.isprintable():
        raise click.UsageError(f"invalid name {name!r}: must be printable text; choose another with --name")
    if port == rest_api_port:
        raise click.UsageError(f"--port and --rest-api-port are both {port}: choose two different ports")
    _check_ports(port, rest_api_port)
    if verbose:
        show_log()
    from savedmodel_bakery.serving.commands import model_server as cli
    from savedmodel_bakery.serving.options import flags

    command_line = flags.parse(
        [
            f"--model_name={name}",
            f"--model_base_path={model.base_path}",
            f"--port={port}",
            f"--rest_api_port={rest_api_port}",
            f"--bind_address={ADDRESS}",
            f"--allowed_hosts={','.join(('localhost', ADDRESS, *allowed_hosts))}",
            f"--enable_playground={str(playground).lower()}",
            f"--model_cache_dir={model_cache_dir or ''}",
            "--engine=embedded",
        ]
    )
    log.configure(logging.WARNING, "%(levelname)s %(name)s: %(message)s")
    logging.getLogger("savedmodel_bakery.serving.models.version_threads").setLevel(logging.INFO)
    try:
        on_ready = partial(_print_urls, name, port, rest_api_port, playground=playground)
        cli.serve_embedded(command_line, model=model, require_rest=True, on_ready=on_ready)
    except StatusError:
        _check_ports(port, rest_api_port)  # another process may have taken one while TensorFlow was loading
        raise


def _check_ports(port: int, rest_api_port: int) -> None:
    # REST first: if the server failed to open its REST port, it already listens on the gRPC port.
    for option, number in (("--rest-api-port", rest_api_port), ("--port", port)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((ADDRESS, number))
            except OSError as error:
                raise click.ClickException(
                    f"cannot listen on port {number}: {error.strerror}; choose another with {option}"
                ) from error


def _print_urls(name: str, port: int, rest_api_port: int, *, playground: bool) -> None:
    """Print the URLs; return after a second even if stdout is a full pipe, so that the server can be stopped."""
    lines = [
        f"Serving {name}. Press Ctrl-C to stop.",
        f"  gRPC  {ADDRESS}:{port}",
        f"  REST  http://{ADDRESS}:{rest_api_port}/v1/models/{quote(name, safe='')}",
    ]
    if playground:
        lines.append(f"  page  http://{ADDRESS}:{rest_api_port}/playground")
    errors: list[OSError] = []

    def echo() -> None:
        try:
            click.echo("\n".join(lines))
        except OSError as error:  # nobody reads stdout any more, or the disk is full
            errors.append(error)

    printing = threading.Thread(target=echo, daemon=True)
    printing.start()
    printing.join(_PRINT_S)
    if errors:
        raise errors[0]


class _UnparsedCommand(click.Command):
    """A command that leaves all its arguments to its callback: the server's parser follows tensorflow_model_server."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the arguments as they are."""
        ctx.args = args
        return []

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's
        """Complete the server's flags, with the equals sign that a value needs."""
        from savedmodel_bakery.serving.options.flags import FLAGS

        if not incomplete.startswith("-"):
            return []
        names = {
            f"--{flag.name}" if isinstance(flag.default, bool) else f"--{flag.name}=": flag.meaning
            for flag in FLAGS.values()
        }
        return [CompletionItem(name, help=text) for name, text in names.items() if name.startswith(incomplete)]


@click.command(cls=_UnparsedCommand, add_help_option=False)
@click.pass_context
def model_server(ctx: click.Context) -> None:
    """Serve models with tensorflow_model_server's flags, texts and exit codes."""
    from savedmodel_bakery.serving.commands import model_server as cli

    cli.main(ctx.args, program=ctx.command_path)
