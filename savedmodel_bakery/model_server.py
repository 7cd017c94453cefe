"""`bakery model-server`: passes its arguments to the server's own parser, which follows tensorflow_model_server."""

from __future__ import annotations

import click


class _UnparsedCommand(click.Command):
    """A command that leaves all its arguments, `--help` included, to its callback."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the arguments as they are."""
        ctx.args = args
        return []


@click.command(cls=_UnparsedCommand, add_help_option=False)
@click.pass_context
def model_server(ctx: click.Context) -> None:
    """Serve models with tensorflow_model_server's flags, texts and exit codes."""
    from savedmodel_bakery.serving import cli

    cli.main(ctx.args, program=ctx.command_path)
