"""`bakery model-server`: passes its arguments to the server's own parser, which follows tensorflow_model_server."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


class _UnparsedCommand(click.Command):
    """A command that leaves all its arguments, `--help` included, to its callback."""

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
