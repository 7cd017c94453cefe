"""The options of `bakery rollout`, and the rollout that they describe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from savedmodel_bakery.client.commands.options import describe_servers, timeout_option
from savedmodel_bakery.exits import print_error, resumable
from savedmodel_bakery.groups import option_group
from savedmodel_bakery.interrupts import interrupt_on_termination
from savedmodel_bakery.storage.arguments import FolderOrUrl

if TYPE_CHECKING:
    from savedmodel_bakery.client.rollout.rollout import Rollout
    from savedmodel_bakery.client.rollout.servers import ModelServer

TIMEOUT_S = 300.0
model_options = option_group(
    click.argument("model"),
    click.option(
        "--config",
        "config_path",
        required=True,
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
        help="Config file of the servers, as for --model_config_file.",
    ),
)
base_path_option = click.option(
    "--base-path",
    metavar="FOLDER|URL",
    type=FolderOrUrl(exists=True, file_okay=False, path_type=Path),
    show_default="that of the config file",
    help="Folder of the model's versions on this machine, or in a bucket, such as s3://bucket/models/flowers.",
)
change_options = option_group(
    click.option(
        "--polled",
        is_flag=True,
        help="Do not send the configuration to the servers: they read the file themselves, with "
        "--model_config_file_poll_wait_seconds.",
    ),
    timeout_option(TIMEOUT_S, "How long to wait for the servers after each change of the file."),
)


@contextmanager
def open_rollout(
    context: click.Context,
    model: str,
    config_path: Path,
    *,
    polled: bool,
    timeout_s: float = TIMEOUT_S,
    skip_failing: bool = False,
) -> Iterator[Rollout]:
    """Lock the config file, and yield the rollout that the options describe."""
    from savedmodel_bakery.client.rollout.config_file import ConfigFile, locked
    from savedmodel_bakery.client.rollout.rollout import Rollout

    with expected_errors(), resumable(context), interrupt_on_termination(), ExitStack() as stack:
        servers = open_servers(context, stack)
        if not polled and not all(server.can_reload for server in servers):
            raise click.UsageError("the configuration is sent over gRPC: use --format GRPC, or --polled")
        stack.enter_context(locked(config_path))
        yield Rollout(
            ConfigFile(config_path),
            model,
            servers,
            by_reload=not polled,
            timeout_s=timeout_s,
            report=print_error,
            skip_failing=skip_failing,
        )


def open_servers(context: click.Context, stack: ExitStack) -> list[ModelServer]:
    """Return the servers of the connection options; they are closed with `stack`."""
    from savedmodel_bakery.client.rollout.servers import ModelServer

    return [stack.enter_context(closing(ModelServer(server))) for server in describe_servers(context)]


@contextmanager
def expected_errors() -> Iterator[None]:
    """Raise the errors of a rollout as those of click."""
    from savedmodel_bakery.client.rollout import ConfigError, RolloutError

    try:
        yield
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    except RolloutError as error:
        raise click.ClickException(str(error)) from error
