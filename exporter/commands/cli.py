"""The group of the exporter's commands: `python -m exporter` in a clone."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from savedmodel_bakery.exits import run_command
from savedmodel_bakery.exporter.commands.bake import bake, compose, function
from savedmodel_bakery.exporter.commands.inspect import inspect, parity, versions
from savedmodel_bakery.exporter.commands.triton import triton
from savedmodel_bakery.groups import CONTEXT_SETTINGS, Group


@click.group(cls=Group, context_settings={**CONTEXT_SETTINGS, "auto_envvar_prefix": "BAKERY"})
def exporter() -> None:
    """Bake a vision model or a function into a signed SavedModel for any tensorflow_model_server."""


for command in (bake, function, compose, parity, inspect, versions, triton):
    exporter.add_command(command)


def main() -> NoReturn:
    """Run the command line and exit."""
    sys.exit(run_command(exporter))
