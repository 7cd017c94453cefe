"""Command groups that import a command's module only when it is needed, and group the commands in their help.

Imports click only, so that other programs can use them.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

CONTEXT_SETTINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 110,
    "token_normalize_func": lambda token: token.replace("_", "-"),  # so that --rest_api_port works too
}
"""Settings of a group; its commands inherit them."""

_Command = TypeVar("_Command", bound=Callable[..., Any])

FULL_HELP = f"{__name__}.full_help"
"""Key of `click.Context.meta`: whether the help of a command shows all of its options."""

Sections = Mapping[str, Mapping[str, str]]
"""Section title to command names, each with the place of its command object, `package.module:name`."""


class Option(click.Option):
    """An option with aliases, which are accepted but not shown.

    `is_common` lists it in the help's section of common options.
    """

    def __init__(
        self, names: Sequence[str], *, aliases: Sequence[str] = (), is_common: bool = False, **attributes: Any
    ) -> None:
        super().__init__(names, **attributes)
        self.aliases = aliases
        self.is_common = is_common

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Register the option with its aliases."""
        shown, self.opts = self.opts, [*self.opts, *self.aliases]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


def option_group(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command several options, which its help lists in this order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class Command(click.Command):
    """A command whose help lists the common options after its own, and ends with examples (its epilog).

    `brief` are the names of the options that `--help` shows, each with a shorter text if its own is long; `--help-all`
    shows all options, and `see` says where they are explained. Without `brief`, `--help` shows all.
    """

    def __init__(
        self, *args: Any, brief: Mapping[str, str | None] | None = None, see: str = "", **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.brief = brief or {}
        if self.brief:
            text = f"Show all options{see and f' ({see})'} and exit."
            self.params.append(
                click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False, help=text, callback=_help)
            )

    def help_row(self, option: click.Option, ctx: click.Context) -> tuple[str, str] | None:
        """Return the name and the text of an option in the help; None if it is not shown."""
        record = option.get_help_record(ctx)
        if record is None or not self.brief or ctx.meta.get(FULL_HELP) or not _HELP_OPTIONS.isdisjoint(option.opts):
            return record
        if option.name not in self.brief:
            return None
        names, text = record
        if len(names) > _MAX_BRIEF_NAME:  # all choices
            names = f"{', '.join(option.opts)} {option.opts[-1].lstrip('-').upper()}"
        return names, self.brief[option.name] or text

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options."""
        _write_options(self, ctx, formatter)


_HELP_OPTIONS = {"--help", "--help-all"}
_MAX_BRIEF_NAME = 30


def _help(context: click.Context, _option: click.Parameter, is_set: bool) -> None:
    if is_set and not context.resilient_parsing:
        context.meta[FULL_HELP] = True
        click.echo(context.get_help())
        context.exit()


class FloatRange(click.FloatRange):
    """A FloatRange that rejects NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType.convert`."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a valid number.", param, ctx)
        return number


class Group(click.Group):
    """A group with the command `help`, and with suggestions for names that are not those of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Treat `help COMMAND` as `COMMAND --help`."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name."""
        name = args[0]
        is_known = name.startswith("-") or any(self.get_command(ctx, each) for each in (name, name.replace("_", "-")))
        if not is_known and not ctx.resilient_parsing:
            similar = " or ".join(difflib.get_close_matches(name, self.list_commands(ctx)))
            raise click.UsageError(f"No such command {name!r}." + f" Did you mean {similar}?" * bool(similar), ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """A group that imports a command when it runs, or when its help is shown.

    `sections` are the commands in the order of the help; `aliases` are further names with their places, which the
    help does not show.
    """

    def __init__(self, *args: Any, sections: Sections, aliases: Mapping[str, str] | None = None, **attributes: Any):
        super().__init__(*args, **attributes)
        self.sections = sections
        self.aliases = aliases or {}
        self._places = {name: place for commands in sections.values() for name, place in commands.items()}

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return list(self._places)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        place = self._places.get(cmd_name) or self.aliases.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, then the options."""
        for title, commands in self.sections.items():
            rows = []
            for name in commands:
                command = self.get_command(ctx, name)
                assert command is not None
                rows.append((name, command.get_short_help_str(formatter.width)))
            with formatter.section(title):
                formatter.write_dl(rows)
        _write_options(self, ctx, formatter)


class DefaultCommandGroup(LazyGroup):
    """A LazyGroup that runs a default command if its first argument after the options is not a command."""

    def __init__(self, *args: Any, default: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command if there is no other."""
        if args[:1] == ["help"]:
            return super().parse_args(ctx, args)
        place = self._end_of_options(ctx, args)
        is_complete = place <= len(args)  # else click reports the option without a value
        if is_complete and args[place : place + 1] not in ([name] for name in (*self._places, *self.aliases)):
            if place < len(args) and not args[place].startswith("-") and not Path(args[place]).exists():
                raise click.UsageError(
                    f'"{args[place]}" is neither a command nor a file; the commands are {", ".join(self._places)}', ctx
                )
            args = [*args[:place], self.default, *args[place:]]
        return super().parse_args(ctx, args)

    def _end_of_options(self, ctx: click.Context, args: Sequence[str]) -> int:
        """Return the position after the group's options and their values."""
        takes_value = {
            name: not (parameter.is_flag or parameter.count)
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option)
            for name in (*parameter.opts, *getattr(parameter, "aliases", ()))
        }
        place = 0
        while place < len(args):
            name, equals, _ = args[place].replace("_", "-").partition("=")
            if name in takes_value:
                place += 1 + (takes_value[name] and not equals)
            elif not name.startswith("--") and takes_value.get(name[:2]):  # -mNAME
                place += 1
            else:
                break
        return place


def reject_options(context: click.Context, use: str, applies: Callable[[click.Parameter], bool]) -> None:
    """Reject options on the command line that do not apply to a use; those in the environment may be for others."""
    for parameter in context.command.params:
        is_stated = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if is_stated and not applies(parameter):
            raise click.UsageError(f"{parameter.opts[-1]} does not apply to {use}")


def _write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    own: list[tuple[str, str]] = []
    common: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        if not isinstance(parameter, click.Option):
            continue
        row = command.help_row(parameter, ctx) if isinstance(command, Command) else parameter.get_help_record(ctx)
        if row is not None:
            is_common = getattr(parameter, "is_common", False) or not _HELP_OPTIONS.isdisjoint(parameter.opts)
            (common if is_common else own).append(row)
    for title, rows in (("Options", own), ("Common options", common)):
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
