"""Exit codes of all commands, and the errors that end a command with a message on stderr instead of a traceback."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from savedmodel_bakery.client.endpoints import DEFAULT_MODEL
from savedmodel_bakery.client.error_text import image_error, one_line
from savedmodel_bakery.client.errors import ClientError, ConnectionFailedError
from savedmodel_bakery.interrupts import INTERRUPTED
from savedmodel_bakery.wire.status import StatusError

FAILED = 1
NO_CONNECTION = 3
PHOTOS_FAILED = 4

_DEFAULT_MODEL_NOT_FOUND = re.compile(
    rf"NOT_FOUND: (Servable not found for request: (Latest|Specific)\({DEFAULT_MODEL}\b|"
    rf"Could not find (any versions|version \d+) of model {DEFAULT_MODEL}$)"
)


class _NoConnection(click.ClickException):
    exit_code = NO_CONNECTION


def run_command(
    command: click.Command,
    arguments: Sequence[str] | None = None,
    *,
    prog_name: str | None = None,
    failures: tuple[type[Exception], ...] = (),
) -> int:
    """Run a command, print an expected error, and return the exit code.

    Wrong usage is printed as click does, every other error as one line that starts with `error:`.

    Args:
        command: the command.
        arguments: its arguments; the default is those of this process.
        prog_name: the program's name for the help; by default the script's name or `python -m PACKAGE`.
        failures: further errors that are expected; their exit code is 1.
    """
    try:
        code = command.main(arguments, prog_name=prog_name, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.Abort:  # click has ended the line of a terminal's ^C
        print_error("interrupted")
        return INTERRUPTED
    except click.UsageError as exc:
        exc.show()
        return exc.exit_code
    except click.ClickException as exc:
        error = exc
    except (ConnectionFailedError, ConnectionError) as exc:
        error = _NoConnection(str(exc))
    except (ClientError, StatusError) as exc:
        error = click.ClickException(refusal_text(str(exc)))
    except failures as exc:
        error = click.ClickException(str(exc))
    except OSError as exc:  # without a file name, such as for a full disk behind stdout
        error = click.ClickException(str(exc) if exc.filename else f"cannot write the output: {exc.strerror or exc}")
    print_error(f"error: {error.format_message()}")
    return error.exit_code


def refusal_text(message: str) -> str:
    """Return the text of a ClientError for users of the command line, who may have forgotten to name the model."""
    message = image_error(message)
    if _DEFAULT_MODEL_NOT_FOUND.match(message):
        return f'{message}; "{DEFAULT_MODEL}" is the default model: pass the name of another one with -m'
    return message


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
