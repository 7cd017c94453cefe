"""The commands `rollout start|promote|rollback|status|prune`: change which version of a model answers, step by step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from savedmodel_bakery.client.commands.options import model_servers_options
from savedmodel_bakery.client.commands.rollout_options import (
    base_path_option,
    change_options,
    expected_errors,
    model_options,
    open_rollout,
    open_servers,
)
from savedmodel_bakery.client.rollout.steps import STABLE
from savedmodel_bakery.errors import ClientError, one_line
from savedmodel_bakery.exits import FAILED, NO_CONNECTION, as_usage_error, print_error
from savedmodel_bakery.groups import Command, FloatRange, Group
from savedmodel_bakery.storage.store import Store
from savedmodel_bakery.wire.status import Code

if TYPE_CHECKING:
    from savedmodel_bakery.client.calls import VersionStatus
    from savedmodel_bakery.client.rollout.rollout import Rollout


def _epilog(*examples: str) -> str:
    lines = "\n".join(f"  bakery rollout {example}" for example in examples)
    codes = "Exit codes: 0 success, 1 refused or failed, 2 wrong usage, 3 cannot connect, 130 interrupted."
    return f"\n\b\nExamples:\n{lines}\n\n\b\n{codes}\n"


_START = "start flowers --config models.config --canary 7"
_PROMOTE = "promote flowers --config models.config --compare photos/"
_ROLLBACK = "rollback flowers --config models.config"
_STATUS = "status flowers --config models.config -t a.example -t b.example"
_PRUNE = "prune flowers --config models.config --keep 3"
_BRIEF = {
    "config_path": None,
    "transport": "Protocol: GRPC or REST.",
    "target": "Model server, by default 127.0.0.1. Repeatable.",
    "token_file": "File with the token for the servers.",
}
_CHANGE_BRIEF = _BRIEF | {"polled": "The servers read the file themselves.", "timeout_s": None}


class _Group(Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names in the order of a rollout."""
        return list(self.commands)


@click.group(cls=_Group, epilog=_epilog(_START, _PROMOTE, _ROLLBACK, _STATUS, _PRUNE))
def rollout() -> None:
    """Replace the version of a model step by step: start a canary, then promote it or roll it back.

    The config file of the servers stays the source of truth. It is edited in place: other models, comments and the
    order are kept.
    """


@rollout.command(
    cls=Command,
    epilog=_epilog(_START, "start flowers --config models.config --canary 7 --polled"),
    brief=_CHANGE_BRIEF | {"canary": None, "stable": None},
)
@model_options
@click.option("--canary", required=True, type=click.IntRange(min=0), help="Version to load as the canary.")
@click.option(
    "--stable",
    type=click.IntRange(min=0),
    show_default="that of the label, or else the highest AVAILABLE one",
    help="Version that most callers get.",
)
@base_path_option
@change_options
@model_servers_options
@click.pass_context
def start(
    context: click.Context, /, canary: int, stable: int | None, base_path: Path | Store | None, **options: Any
) -> None:
    """Load a version of MODEL as a canary, beside the stable one.

    When it is AVAILABLE on every server, it gets the label canary, and the other one the label stable. If a server
    cannot load it in time, the file is put back as it was. The version with the label previous is unloaded.
    """
    from savedmodel_bakery.client.rollout import operations

    with open_rollout(context, **options) as opened:
        operations.start(opened, canary=canary, stable=stable, base_path=base_path)
        _print_result(opened)


@rollout.command(
    cls=Command,
    epilog=_epilog(_PROMOTE, "promote flowers --config models.config --no-goldens"),
    brief=_CHANGE_BRIEF | {"no_goldens": None, "paths": "Photos that both versions must answer alike. Repeatable."},
)
@model_options
@click.option("--no-goldens", is_flag=True, help="Do not replay the goldens, such as for a version without them.")
@click.option(
    "--compare",
    "paths",
    multiple=True,
    metavar="PATH",
    help="Photos that both versions must answer alike, on the first server: a photo, folder, glob, archive or list, as "
    "for bulk; a list also has other inputs. Repeatable.",
)
@click.option(
    "--min-equal-labels",
    type=FloatRange(0, 1),
    default=0.9,
    show_default=True,
    help="Share of these photos that must have equal labels.",
)
@click.option(
    "--max-score-difference",
    type=FloatRange(0),
    default=0.1,
    show_default=True,
    help="Largest mean difference of the scores; that of pictures is a part of white, that of masks 1 less their "
    "intersection over union.",
)
@base_path_option
@change_options
@model_servers_options
@click.pass_context
def promote(
    context: click.Context,
    /,
    no_goldens: bool,
    paths: tuple[str, ...],
    min_equal_labels: float,
    max_score_difference: float,
    base_path: Path | Store | None,
    **options: Any,
) -> None:
    """Make the canary of MODEL the stable version.

    Before that, its goldens are replayed on every server, and with --compare both versions answer the same photos. The
    former stable version stays loaded, with the label previous, so that a rollback takes effect at once.
    """
    from savedmodel_bakery.answers.photo_files import FileList, check_parquet_files
    from savedmodel_bakery.client.rollout import operations
    from savedmodel_bakery.client.rollout.evidence import Limits

    photos = FileList.from_arguments(paths, all_files=False)
    with as_usage_error(ValueError):
        photos.check()
        check_parquet_files(photos.named())
    with open_rollout(context, **options) as opened:
        operations.promote(
            opened,
            with_goldens=not no_goldens,
            base_path=base_path,
            photos=photos if paths else None,
            limits=Limits(min_equal_labels, max_score_difference),
        )
        _print_result(opened)


@rollout.command(cls=Command, epilog=_epilog(_ROLLBACK), brief=_CHANGE_BRIEF)
@model_options
@change_options
@model_servers_options
@click.pass_context
def rollback(context: click.Context, /, **options: Any) -> None:
    """Undo the last step of a rollout of MODEL.

    Before a promotion, the canary is removed. After it, the label stable returns to the previous version. The version
    that loses its label is unloaded. If some servers cannot be reached, or fail, the others are rolled back.
    """
    from savedmodel_bakery.client.rollout import operations
    from savedmodel_bakery.client.rollout.rollout import UNREACHABLE

    with open_rollout(context, skip_failing=True, **options) as opened:
        operations.roll_back(opened)
        _print_result(opened)
    if opened.failures:
        print_error(
            f"error: not rolled back: {', '.join(opened.failures)}; run the same command again when the cause is fixed"
        )
        only_unreachable = all(isinstance(error, UNREACHABLE) for error in opened.failures.values())
        context.exit(NO_CONNECTION if only_unreachable else FAILED)


@rollout.command(cls=Command, epilog=_epilog(_STATUS), brief=_BRIEF | {"as_json": None})
@model_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per server and version.")
@model_servers_options
@click.pass_context
def status(context: click.Context, model: str, config_path: Path, as_json: bool) -> None:
    """Print the versions of MODEL on each server: the server, the version, its state, and its labels.

    The labels are those in effect. Exits with 1 if a server differs from the config file, and with 3 if one cannot be
    reached.
    """
    from savedmodel_bakery.client.rollout.config_file import ConfigFile
    from savedmodel_bakery.client.rollout.rollout import UNREACHABLE
    from savedmodel_bakery.client.rollout.servers import find_differences, find_missing, labels_of
    from savedmodel_bakery.wire.model_config import Specific

    code = 0
    with expected_errors(), ExitStack() as stack:
        servers = open_servers(context, stack)
        file = ConfigFile(config_path)
        config = file.model(model)
        named = config.policy.versions if isinstance(config.policy, Specific) else frozenset[int]()
        for server in servers:
            try:
                state = server.read(model, labels_of(config))
            except ClientError as error:
                code = max(code, NO_CONNECTION if isinstance(error, UNREACHABLE) else FAILED)
                _print_row(as_json, server=server.name, version=None, state=None, labels=[], error=str(error))
                continue
            loaded = [status for status in state.versions if status.state != "END" or status.code is not Code.OK]
            _print_versions(server.name, loaded, state.labels, as_json=as_json)
            for problem in find_differences(config, state) + find_missing(named, state):
                code = max(code, FAILED)
                print_error(f"{server.name} differs from {file}: {problem}")
    context.exit(code)


@rollout.command(
    cls=Command,
    epilog=_epilog(_PRUNE, "prune flowers --config models.config --dry-run"),
    brief=_BRIEF | {"keep": None, "dry_run": None},
)
@model_options
@click.option(
    "--keep", type=click.IntRange(min=1), default=3, show_default=True, help="How many of the newest versions to keep."
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@base_path_option
@model_servers_options
@click.pass_context
def prune(context: click.Context, /, keep: int, dry_run: bool, base_path: Path | Store | None, **options: Any) -> None:
    """Remove the folders of old versions of MODEL, here or in a bucket, and print them.

    Versions that the config file names, or that a server has loaded or is loading, are kept besides the newest ones. So
    state all servers that load versions from the folder; nothing is removed if one of them cannot be reached.
    """
    from savedmodel_bakery.client.rollout import operations

    with open_rollout(context, polled=True, **options) as opened:
        for path in operations.prune(opened, keep=keep, base_path=base_path, is_trial=dry_run):
            click.echo(path)


def _print_result(rollout: Rollout) -> None:
    for name, state in rollout.read().items():
        available = [status for status in state.versions if status.state == "AVAILABLE"]
        _print_versions(name, available, state.labels, as_json=False)
    serving = rollout.serving()
    stable = serving.labels.get(STABLE)
    if stable is not None and (newest := max(serving.versions)) != stable:
        print_error(
            f"warning: requests without version and label get version {newest}, the highest one; to get the stable "
            f"version {stable}, callers must state the label {STABLE}"
        )


def _print_versions(
    server: str, versions: Sequence[VersionStatus], labels: Mapping[str, int], *, as_json: bool
) -> None:
    for status in versions:
        own = [label for label, version in labels.items() if version == status.version]
        error = "" if status.code is Code.OK else f"{status.code.name}: {status.message}"
        _print_row(as_json, server=server, version=status.version, state=status.state, labels=own, error=error)
    if not versions:
        _print_row(as_json, server=server, version=None, state=None, labels=[], error="no version is loaded")


def _print_row(
    as_json: bool, *, server: str, version: int | None, state: str | None, labels: Sequence[str], error: str
) -> None:
    if as_json:
        row = {"server": server, "version": version, "state": state, "labels": labels, "error": error or None}
        click.echo(json.dumps(row, ensure_ascii=False))
        return
    cells = [server, "-" if version is None else str(version), state or "-", ",".join(labels) or "-"]
    click.echo("\t".join([*cells, one_line(error)] if error else cells))
