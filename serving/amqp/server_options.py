"""The worker's options for the model server that it calls: its address, TLS and token."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import click

from savedmodel_bakery.client.credentials import read_token
from savedmodel_bakery.client.servers import Server, parse_server, select_tls
from savedmodel_bakery.defaults import TOKEN_VARIABLE
from savedmodel_bakery.exits import as_usage_error

_Command = TypeVar("_Command", bound=Callable[..., Any])

logger = logging.getLogger(__name__)

_FILE = click.Path(exists=True, dir_okay=False, readable=True)
_OPTIONS = (
    click.option(
        "--server",
        is_eager=True,  # the callback of --url reads it
        metavar="[grpcs://]HOST[:PORT]",
        help="Call this model server over gRPC instead; the default port is 8500.",
    ),
    click.option("--tls", is_flag=True, help="Encrypt the connection to --server, as grpcs:// does."),
    click.option(
        "--ca", type=_FILE, show_default="public authorities", help="PEM file of the authorities to trust, with TLS."
    ),
    click.option("--cert", type=_FILE, help="PEM file of the worker's certificate, with TLS."),
    click.option("--key", type=_FILE, show_default="in --cert", help="PEM file of its private key."),
    click.option(
        "--token-file",
        metavar="FILE",
        help=f"File with the token for --server. Or set {TOKEN_VARIABLE} to the token.",
    ),
)


def server_options(command: _Command) -> _Command:
    """Give a command the options; their values are the arguments of `describe_server`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def describe_server(
    server: str | None, *, tls: bool, ca: str | None, cert: str | None, key: str | None, token_file: str | None
) -> Server | None:
    """Return the model server of the options; None without `--server`. Log a warning if a token is sent unencrypted.

    Raises:
        click.UsageError: an option is invalid, or options exclude each other.
    """
    if server is None:
        for name, value in (("tls", tls), ("ca", ca), ("cert", cert), ("key", key), ("token-file", token_file)):
            if value:
                raise click.UsageError(f"--{name} needs --server, the model server that it is for")
        return None
    with as_usage_error(ValueError):
        described = parse_server(
            server,
            transport="grpc",
            tls=select_tls(server, is_on=tls, ca=ca, cert=cert, key=key),
            token=read_token(token_file),
        )
    if described.exposes_token:
        logger.warning("%s is sent the token without encryption: use --tls", described.endpoints[0].address)
    return described
