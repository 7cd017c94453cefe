"""The options of commands that publish metrics on a port of their own. Imports the metrics when needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def metrics_options(command: _Command) -> _Command:
    """Give a command `--metrics-port` and `--metrics-address`."""
    for option in (
        click.option(
            "--metrics-address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
            help="IP address of that page; it needs no token.",
        ),
        click.option(
            "--metrics-port", type=click.IntRange(1, 65535), show_default="none",
            help="Port of a page /metrics for Prometheus.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def serve_page(address: str, port: int) -> None:
    """Serve our own metrics at `/metrics` of a port until the process ends.

    Raises:
        click.ClickException: the port is not available.
    """
    from prometheus_client import start_http_server

    from savedmodel_bakery.serving.telemetry.registry import REGISTRY

    try:
        start_http_server(port, address, REGISTRY)
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on {address}:{port} for --metrics-port: {error.strerror or error}"
        ) from error
