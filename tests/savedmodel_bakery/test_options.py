"""Every option of every `bakery` command follows the rules for command lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePath

import click

from savedmodel_bakery.command import COMMANDS, bakery
from savedmodel_bakery.groups import FULL_HELP, Command

DURATION = re.compile(r"timeout|duration|wait|idle|retry|expiration|interval|delay|period|backoff")
UNIT = re.compile(r"-(seconds|ms|us)$")


def walk(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """Yield the context of a command and of its subcommands."""
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            subcommand = command.get_command(context, child)
            assert subcommand is not None
            yield from walk(subcommand, child, context)


CONTEXTS = [context for context in walk(bakery, "bakery") if context.info_name != "model-server"]
OPTIONS = {
    f"{context.command_path} {max(option.opts, key=len)}": (option, context)
    for context in CONTEXTS
    for option in context.command.params
    if isinstance(option, click.Option)
}


def test_the_options_of_all_commands_are_found() -> None:
    paths = {context.command_path for context in CONTEXTS}
    assert {f"bakery {name}" for name in COMMANDS if name != "model-server"} <= paths
    assert {"bakery", "bakery amqp work", "bakery amqp requeue"} <= paths
    assert len(OPTIONS) > 150


def violations(follows: Callable[[click.Option, click.Context], object]) -> list[str]:
    """Return the options that don't follow a rule."""
    return [name for name, (option, context) in OPTIONS.items() if not follows(option, context)]


def test_names_are_kebab_case() -> None:
    """The names that the help shows; names with underscores are accepted too."""

    def follows(option: click.Option, context: click.Context) -> bool:
        names = [*option.opts, *option.secondary_opts]
        accepted = context.token_normalize_func
        return (
            all(re.fullmatch(r"-[a-z]|--[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)
            and any(name.startswith("--") for name in names)
            and accepted is not None
            and names == [accepted(name[:2] + name[2:].replace("-", "_")) for name in names]
        )

    assert [] == violations(follows)


def test_durations_have_a_unit() -> None:
    def follows(option: click.Option, _: click.Context) -> object:
        name = max(option.opts, key=len)
        return option.is_flag or name.endswith("-attempts") or not DURATION.search(name) or UNIT.search(name)

    assert [] == violations(follows)


def test_options_have_a_help_text() -> None:
    assert [] == violations(lambda option, _: (option.help or "").endswith((".", "…", "]")))


def test_options_show_their_default() -> None:
    def follows(option: click.Option, context: click.Context) -> object:
        has_default = isinstance(option.get_default(context, call=False), (str, int, float, PurePath))
        is_shown = option.show_default or context.show_default or "[default: " in (option.help or "")
        return option.is_flag or not has_default or is_shown

    assert [] == violations(follows)


def test_out_states_whether_it_is_a_file_or_a_folder() -> None:
    assert [] == violations(
        lambda option, _: "--out" not in option.opts or re.search(r"\b([Ff]ile|[Ff]older)\b", option.help or "")
    )


def test_commands_have_both_help_options_and_end_their_help_with_examples() -> None:
    def follows(context: click.Context) -> object:
        return (
            context.help_option_names == ["-h", "--help"]
            and re.search(r"^Examples?:\n  .*\bbakery ", context.command.epilog or "", re.MULTILINE)
            and context.command.get_short_help_str(200).endswith(".")
        )

    assert [] == [context.command_path for context in CONTEXTS if not follows(context)]


def help_of(context: click.Context, *, full: bool) -> str:
    own = click.Context(
        context.command, info_name=context.info_name, terminal_width=80, **context.command.context_settings
    )
    own.meta[FULL_HELP] = full
    return context.command.get_help(own)


def test_the_help_fits_a_screen_and_the_full_help_has_all_options() -> None:
    """Commands with many options show the important ones only; `brief` names existing options."""
    briefs = [context for context in CONTEXTS if isinstance(context.command, Command) and context.command.brief]
    assert {"bake", "ask", "bulk", "parity"} <= {context.info_name for context in briefs}
    too_long = {"work", "start", "promote", "rollback", "prune"}  # of operators
    lines = {context.info_name: len(help_of(context, full=False).splitlines()) for context in CONTEXTS}
    assert {} == {name: count for name, count in lines.items() if count > 50 and name not in too_long}
    for context in briefs:
        options = [each for each in context.command.params if isinstance(each, click.Option)]
        assert set(context.command.brief) <= {each.name for each in options}
        assert all(each.opts[-1] in help_of(context, full=True) for each in options)


def test_every_command_has_a_line_in_the_help_of_bakery() -> None:
    assert all(text.endswith(".") for _, text in COMMANDS.values())
