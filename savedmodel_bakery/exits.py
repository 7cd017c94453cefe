"""Exit codes of all commands, and the errors that end a command with a message on stderr instead of a traceback."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import click

from savedmodel_bakery import tracing
from savedmodel_bakery.defaults import DEFAULT_MODEL, TOKEN_VARIABLE
from savedmodel_bakery.errors import (
    AccessDeniedError,
    BakeError,
    ClientError,
    ConnectionFailedError,
    image_error,
    names_options,
    one_line,
)
from savedmodel_bakery.extras import MissingPackageError
from savedmodel_bakery.interrupts import INTERRUPTED, ignore_traceback_of_next_interrupt
from savedmodel_bakery.log import open_closed_streams
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


class _ResumableInterrupt(KeyboardInterrupt):
    """An interrupt of work that the same command continues; its argument is the name of the program."""


def run_command(command: click.Command, arguments: Sequence[str] | None = None, *, prog_name: str | None = None) -> int:
    """Run a command, print an expected error, and return the exit code.

    Wrong usage is printed as click does, every other error as one line that starts with `error:`. Without `prog_name`,
    the program's name is the script's or `python -m PACKAGE`.
    """
    open_closed_streams()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # by default gRPC logs a failed handshake that it also reports
    default = names_options.set(True)
    try:
        tracing.configure()
        code = command.main(arguments, prog_name=prog_name, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (click.Abort, BrokenPipeError) as exc:  # click ends the line of a terminal's ^C, if stderr is not closed
        cause = exc.__cause__ or exc.__context__
        if isinstance(cause, KeyboardInterrupt):
            ignore_traceback_of_next_interrupt()
            hint = ""
            if isinstance(cause, _ResumableInterrupt):
                words = sys.argv[1:] if arguments is None else arguments
                if "-" not in words:  # the list of photos on stdin is gone
                    hint = f"; to continue, run: {cause} {shlex.join(words)}"
            print_error(f"interrupted{hint}")
            return INTERRUPTED
        if isinstance(exc, click.Abort):  # click aborts for EOFError too
            error = click.ClickException(str(cause or "") or "unexpected end of file")
        else:
            error = _NoConnection(str(exc))
    except click.UsageError as exc:
        try:
            exc.show()
        except OSError:
            _flush_or_discard(sys.stderr)
        return exc.exit_code
    except click.ClickException as exc:
        error = exc
    except (ConnectionFailedError, ConnectionError) as exc:
        error = _NoConnection(str(exc))
    except AccessDeniedError as exc:
        error = click.ClickException(f"{exc}; pass a token that allows it with --token-file or {TOKEN_VARIABLE}")
    except (ClientError, StatusError) as exc:
        error = click.ClickException(refusal_text(str(exc)))
    except (BakeError, MissingPackageError) as exc:
        error = click.ClickException(str(exc))
    except OSError as exc:  # such as for a full disk behind stdout
        error = click.ClickException(_os_error_text(exc))
    finally:
        names_options.reset(default)
    print_error(f"error: {error.format_message()}")
    return error.exit_code


def refusal_text(message: str) -> str:
    """Return the text of a ClientError for users of the command line, who may have forgotten to name the model."""
    message = image_error(message)
    if _DEFAULT_MODEL_NOT_FOUND.match(message):
        return f'{message}; "{DEFAULT_MODEL}" is the default model: pass the name of another one with -m'
    return message


def print_error(message: str) -> None:
    """Print a message on one line on stderr, unless nobody reads it any more."""
    try:
        click.echo(one_line(message), err=True)
    except OSError:
        _flush_or_discard(sys.stderr)


@contextmanager
def as_usage_error(*errors: type[Exception]) -> Iterator[None]:
    """Raise these errors as click.UsageError, with the same message."""
    try:
        yield
    except errors as exc:
        raise click.UsageError(str(exc)) from exc


@contextmanager
def resumable(context: click.Context) -> Iterator[None]:
    """Let `run_command` print, if the block is interrupted, that the same command continues the work."""
    try:
        yield
    except KeyboardInterrupt as exc:
        raise _ResumableInterrupt(context.find_root().info_name) from exc


@contextmanager
def exit_if_output_fails() -> Iterator[None]:
    """End the program with exit code 1 if its output cannot be written, silently if nobody reads it any more.

    `run_command` does this for commands. The block must flush what it prints.
    """
    try:
        yield
    except BrokenPipeError:
        _flush_or_discard(sys.stdout)
        sys.exit(FAILED)
    except OSError as exc:
        print_error(f"error: {_os_error_text(exc)}")
        sys.exit(FAILED)


def _os_error_text(error: OSError) -> str:
    """Return the text of an error; one without a file name is taken for one of stdout."""
    if error.filename:
        return str(error)
    _flush_or_discard(sys.stdout)
    return f"cannot write the output: {error.strerror or error}"


def _flush_or_discard(stream: TextIO) -> None:
    """Write what the stream still contains, or discard it, or the last flush of Python would change the exit code."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
