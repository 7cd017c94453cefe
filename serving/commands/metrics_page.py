"""The options of commands that publish metrics on a port of their own. Imports the metrics when needed."""

from __future__ import annotations

import click

from savedmodel_bakery.groups import option_group

metrics_options = option_group(
    click.option(
        "--metrics-port", type=click.IntRange(1, 65535), show_default="none",
        help="Port of a page /metrics for Prometheus.",
    ),
    click.option(
        "--metrics-address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
        help="IP address of that page; it needs no token.",
    ),
)  # fmt: skip
"""Gives a command `--metrics-port` and `--metrics-address`."""


def serve_page(address: str, port: int) -> None:
    """Serve our own metrics at `/metrics` of a port until the process ends."""
    from prometheus_client import start_http_server

    from savedmodel_bakery.serving.telemetry.metrics import REGISTRY

    try:
        start_http_server(port, address, REGISTRY)
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on {address}:{port} for --metrics-port: {error.strerror or error}"
        ) from error
