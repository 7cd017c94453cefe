"""Exit codes, and the errors that end a command with one line on stderr."""

from __future__ import annotations

from collections.abc import Sequence

import click

from savedmodel_bakery.client.error_text import image_error, one_line
from savedmodel_bakery.client.errors import ClientError, ConnectionFailedError

REFUSED = 1
NO_CONNECTION = 3
PHOTOS_FAILED = 4
INTERRUPTED = 130


def run_command(command: click.Command, arguments: Sequence[str] | None = None, *, prog_name: str) -> int:
    """Run a command and return its exit code. Every expected error is printed as one line on stderr.

    Args:
        command: the command.
        arguments: its arguments; the default is those of this process.
        prog_name: the program's name for the help.
    """
    try:
        code = command.main(arguments, prog_name=prog_name, standalone_mode=False)
    except click.ClickException as exc:
        print_error(exc.format_message())
        return exc.exit_code
    except ModuleNotFoundError as exc:  # of an extra, which the message names
        print_error(str(exc))
        return REFUSED
    except ClientError as exc:
        print_error(image_error(str(exc)))
        return NO_CONNECTION if isinstance(exc, ConnectionFailedError) else REFUSED
    except click.Abort:
        return INTERRUPTED
    except OSError as exc:  # such as a full disk behind stdout
        print_error(f"cannot write the output: {exc.strerror}")
        return REFUSED
    return code if isinstance(code, int) else 0


def print_error(message: str) -> None:
    """Print a message on one line on stderr."""
    click.echo(one_line(message), err=True)
