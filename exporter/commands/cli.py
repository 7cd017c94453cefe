"""The group of the exporter's commands: `python -m exporter` in a clone."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from savedmodel_bakery.exits import run_command
from savedmodel_bakery.groups import CONTEXT_SETTINGS, LazyGroup

_COMMANDS = "savedmodel_bakery.exporter.commands"

SECTIONS = {
    "Publish": {
        **{name: f"{_COMMANDS}.bake:{name}" for name in ("bake", "function", "compose")},
        "triton": f"{_COMMANDS}.triton:triton",
    },
    "Examine": {name: f"{_COMMANDS}.inspect:{name}" for name in ("parity", "inspect")},
}


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    aliases={"versions": f"{_COMMANDS}.inspect:inspect"},
    context_settings={**CONTEXT_SETTINGS, "auto_envvar_prefix": "BAKERY"},
)
def exporter() -> None:
    """Bake a vision model or a function into a signed SavedModel for any tensorflow_model_server."""


def main() -> NoReturn:
    """Run the command line and exit."""
    sys.exit(run_command(exporter))
