"""The `bakery` command: loads each subcommand on first use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import click
from click.shell_completion import CompletionItem

from savedmodel_bakery.exits import run_command
from savedmodel_bakery.groups import CONTEXT_SETTINGS, LazyGroup

SECTIONS = {
    "Bake": {
        "bake": ("exporter.commands.bake:bake", "Bake a vision model into a SavedModel."),
        "function": ("exporter.commands.bake:function", "Bake a TensorFlow function into a SavedModel."),
        "compose": ("exporter.commands.bake:compose", "Compose a pipeline of SavedModels into one SavedModel."),
        "triton": ("exporter.commands.triton:triton", "Write a SavedModel or a pipeline for NVIDIA Triton."),
        "parity": ("exporter.commands.inspect:parity", "Compare a SavedModel with its source model."),
        "inspect": ("exporter.commands.inspect:inspect", "List a model's versions, or show what a version contains."),
    },
    "Store": {
        "publish": ("storage.commands:publish", "Publish a version to a bucket."),
        "pull": ("storage.commands:pull", "Copy a version from a bucket to a folder."),
        "package": ("storage.commands:package", "Write a version as an archive for a managed cloud."),
    },
    "Serve": {
        "serve": ("commands.serve:serve", "Serve one model on this machine."),
        "model-server": ("commands.serve:model_server", "Serve with tensorflow_model_server's flags."),
        "amqp": ("serving.commands.amqp:cli", "Process requests from a RabbitMQ queue."),
        "token": ("serving.commands.token:cli", "Make tokens for the callers of a server."),
        "rollout": ("client.commands.rollout:rollout", "Replace the version of a model step by step."),
    },
    "Call": {
        "ask": ("commands.ask:ask", "Send photos to a model and print what it returns."),
        "bulk": ("commands.bulk:bulk", "Run a model on many photos and write one file."),
        "predict": ("client.commands.predict:predict", "Run a signature on arrays."),
        "metadata": ("client.commands.inspection:metadata", "Print a model's signatures as JSON."),
        "status": ("client.commands.inspection:status", "Print the state of each version of a model."),
        "wait": ("client.commands.inspection:wait", "Wait until a version of a model is AVAILABLE."),
        "check": ("client.commands.inspection:check", "Replay a version's golden requests."),
        "bench": ("client.commands.bench:bench", "Measure a server under load."),
    },
}
"""The subcommands of each section of the help: where its click command is, `module:attribute` in this package, and its
line in the help."""

ALIASES = {"versions": "exporter.commands.inspect:inspect", "results": "client.commands.predict:results"}
"""Earlier names of commands, which work but are not shown."""

COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}

EXAMPLES = """
\b
Examples:
  bakery bake efficientnet-lite0
  bakery serve saved_model/efficientnet_lite0
  bakery ask photo.jpg
  eval "$(_BAKERY_COMPLETE=bash_source bakery)"    # shell completion; or zsh_source, fish_source

\b
Exit codes: 0 success, 1 refused or failed, 2 wrong usage, 3 cannot connect, 4 some photos failed, 130 interrupted.
"""


class BakeryGroup(LazyGroup):
    """A LazyGroup that imports nothing for its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the subcommands by section, then the options."""
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", text) for name, (_, text) in commands.items()])
        click.Command.format_options(self, ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete subcommand names without importing the subcommands."""
        names = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=BakeryGroup,
    sections={
        title: {name: f"savedmodel_bakery.{place}" for name, (place, _) in commands.items()}
        for title, commands in SECTIONS.items()
    },
    aliases={name: f"savedmodel_bakery.{place}" for name, place in ALIASES.items()},
    epilog=EXAMPLES,
    context_settings=CONTEXT_SETTINGS | {"auto_envvar_prefix": "BAKERY"},
)
@click.version_option(
    package_name="savedmodel-bakery", message="%(prog)s %(version)s", allow_from_autoenv=False, help="Show the version."
)
def bakery() -> None:
    """Bake image models into signed SavedModels, serve them, and call them."""


def main(arguments: Sequence[str] | None = None, *, program: str = "bakery") -> NoReturn:
    """Run the command line and exit."""
    sys.exit(run_command(bakery, arguments, prog_name=program))
