"""The group of the client's commands: `python -m client` in a clone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from savedmodel_bakery.client.commands.options import connection_options
from savedmodel_bakery.exits import run_command
from savedmodel_bakery.groups import CONTEXT_SETTINGS, DefaultCommandGroup

_COMMANDS = "savedmodel_bakery.client.commands"

SECTIONS = {
    "Run a model": {
        "ask": f"{_COMMANDS}.ask:ask",
        "bulk": f"{_COMMANDS}.bulk:bulk",
        "predict": f"{_COMMANDS}.predict:predict",
        "results": f"{_COMMANDS}.predict:results",
    },
    "Inspect a server": {
        "metadata": f"{_COMMANDS}.inspection:metadata",
        "status": f"{_COMMANDS}.inspection:status",
        "wait": f"{_COMMANDS}.inspection:wait",
        "check": f"{_COMMANDS}.inspection:check",
        "bench": f"{_COMMANDS}.bench:bench",
    },
    "Change a server": {"rollout": f"{_COMMANDS}.rollout:rollout"},
}
ALIASES = {"classify": f"{_COMMANDS}.bulk:bulk"}

EXAMPLES = """
\b
Examples:
  bakery ask horse.jpg cat.png
  bakery ask --format REST -t models.example:8501 --top-k 3 horse.jpg
  bakery ask --format AMQP -t amqp://user:password@broker.example horse.jpg
  bakery predict -m add_ten --input x=array.npy --out outputs/
  bakery bulk photos/ --out results.jsonl
  bakery status

\b
Exit codes: 0 success, 1 refused or failed, 2 wrong usage, 3 cannot connect, 4 bulk finished, but some photos
failed, 130 interrupted.
"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    sys.exit(run_command(cli, arguments))


@click.group(
    cls=DefaultCommandGroup,
    default="ask",
    sections=SECTIONS,
    aliases=ALIASES,
    epilog=EXAMPLES,
    context_settings=CONTEXT_SETTINGS,
    options_metavar="[CONNECTION OPTIONS]",
    subcommand_metavar="[COMMAND] [ARGS]...",
)
@connection_options
def cli() -> None:
    """Call a model server: classify photos, run signatures on arrays, and inspect the server.

    Without a COMMAND, run `ask`. The common options can be given before or after the command. Every environment
    variable BAKERY_CLIENT_… sets the default of an option.
    """
