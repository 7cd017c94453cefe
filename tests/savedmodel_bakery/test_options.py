"""Every option of every `bakery` command follows the rules for command lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

import click
import pytest

from savedmodel_bakery.command import COMMANDS, bakery

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
OPTIONS = [
    pytest.param(option, context, id=f"{context.command_path} {max(option.opts, key=len)}")
    for context in CONTEXTS
    for option in context.command.params
    if isinstance(option, click.Option)
]
each_command = pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.command_path)
each_option = pytest.mark.parametrize(("option", "context"), OPTIONS)


def test_the_options_of_all_commands_are_found() -> None:
    paths = {context.command_path for context in CONTEXTS}
    assert {f"bakery {name}" for name in COMMANDS if name != "model-server"} <= paths
    assert {"bakery", "bakery amqp work", "bakery amqp requeue"} <= paths
    assert len(OPTIONS) > 150


@each_option
def test_names_are_kebab_case(option: click.Option, context: click.Context) -> None:
    """The names that the help shows; names with underscores are accepted too."""
    names = [*option.opts, *option.secondary_opts]
    assert [] == [name for name in names if not re.fullmatch(r"-[a-z]|--[a-z0-9]+(-[a-z0-9]+)*", name)]
    assert any(name.startswith("--") for name in names)
    assert context.token_normalize_func is not None
    assert names == [context.token_normalize_func(name[:2] + name[2:].replace("-", "_")) for name in names]


@each_option
def test_durations_have_a_unit(option: click.Option, context: click.Context) -> None:
    name = max(option.opts, key=len)
    is_count = name.endswith("-attempts")
    assert option.is_flag or is_count or not DURATION.search(name) or UNIT.search(name), context.command_path


@each_option
def test_options_have_a_help_text_and_show_their_default(option: click.Option, context: click.Context) -> None:
    help_text = option.help or ""
    assert help_text.endswith((".", "…", "]")), help_text
    has_default = isinstance(option.get_default(context, call=False), (str, int, float, PurePath))
    assert option.is_flag or not has_default or option.show_default or "[default: " in help_text


@each_option
def test_out_states_whether_it_is_a_file_or_a_folder(option: click.Option, context: click.Context) -> None:
    is_stated = re.search(r"\b([Ff]ile|[Ff]older)\b", option.help or "")
    assert is_stated or "--out" not in option.opts, context.command_path


@each_command
def test_commands_have_both_help_options_and_end_their_help_with_examples(context: click.Context) -> None:
    assert ["-h", "--help"] == context.help_option_names
    assert re.search(r"^Examples?:\n  .*\bbakery ", context.command.epilog or "", re.MULTILINE)
    assert context.command.get_short_help_str(200).endswith(".")


def test_every_command_has_a_line_in_the_help_of_bakery() -> None:
    assert all(entry.help.endswith(".") for entry in COMMANDS.values())
