"""Exit codes, and the errors that end a command with one line on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from savedmodel_bakery.client.error_text import image_error, one_line
from savedmodel_bakery.client.errors import ClientError, ConnectionFailedError

FAILED = 1
NO_CONNECTION = 3
PHOTOS_FAILED = 4
INTERRUPTED = 130


class _NoConnection(click.ClickException):
    exit_code = NO_CONNECTION


def run_command(
    command: click.Command,
    arguments: Sequence[str] | None = None,
    *,
    prog_name: str | None = None,
    failures: tuple[type[Exception], ...] = (),
    report: Callable[[click.ClickException], None] = lambda error: print_error(error.format_message()),
) -> int:
    """Run a command, report an expected error, and return the exit code.

    Args:
        command: the command.
        arguments: its arguments; the default is those of this process.
        prog_name: the program's name for the help; by default the script's name or `python -m PACKAGE`.
        failures: further errors that are expected; their exit code is 1.
        report: prints an error; by default its message on one line.
    """
    try:
        code = command.main(arguments, prog_name=prog_name, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as exc:
        error = exc
    except (ConnectionFailedError, ConnectionError) as exc:
        error = _NoConnection(str(exc))
    except ClientError as exc:
        error = click.ClickException(image_error(str(exc)))
    except failures as exc:
        error = click.ClickException(str(exc))
    except OSError as exc:  # such as a full disk behind stdout
        error = click.ClickException(f"cannot write the output: {exc.strerror or exc}")
    report(error)
    return error.exit_code


def print_error(message: str) -> None:
    """Print a message on one line on stderr."""
    click.echo(one_line(message), err=True)


@contextmanager
def as_usage_error(*errors: type[Exception]) -> Iterator[None]:
    """Raise these errors as click.UsageError, with the same message."""
    try:
        yield
    except errors as exc:
        raise click.UsageError(str(exc)) from exc
