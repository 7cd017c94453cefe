"""What the commands run in: TensorFlow, signals, and progress on stderr."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
from collections.abc import Iterator
from typing import TypeVar

import click

from savedmodel_bakery import tensorflow_import
from savedmodel_bakery.errors import one_line
from savedmodel_bakery.extras import naming_extras
from savedmodel_bakery.interrupts import exit_now, exit_on_interrupt
from savedmodel_bakery.tensorflow_import import show_log

T = TypeVar("T")


@contextlib.contextmanager
def tensorflow(
    command: str, *, verbose: bool, beside: contextlib.AbstractContextManager[T] | None = None
) -> Iterator[T | None]:
    """Import TensorFlow quietly; signals remove staged files, and output of the user's code goes to stderr.

    `beside` is entered before the import; the `with` statement binds what it returns.
    """
    if verbose:
        show_log()
    with (
        clean_end_on_signals(),
        exit_on_interrupt(),
        naming_extras(command, "export"),
        contextlib.redirect_stdout(sys.stderr),
        beside or contextlib.nullcontext() as entered,
    ):
        import_tensorflow()
        yield entered
        gc.freeze()  # at the end of the process, a search for garbage in Keras models would take a second


def import_tensorflow() -> None:
    """Import TensorFlow, and Keras with it but not matplotlib and pandas, which take a second; a bake needs neither."""
    tensorflow_import.import_tensorflow(without=("matplotlib", "pandas")).get_logger().setLevel("ERROR")


@contextlib.contextmanager
def clean_end_on_signals() -> Iterator[None]:
    """In the block, SIGTERM and SIGHUP remove staged files before they end the process; nohup still works."""
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    handlers = {number: signal.signal(number, lambda received, _: exit_now(128 + received)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


NO_EVIDENCE = "no evidence of the training: --predictions, --inputs or --labelled would check the recipe"


def print_progress(step: str) -> None:
    """Print a step of the work on stderr."""
    click.echo(f"{one_line(step)} …", err=True)


def print_warning(warning: str) -> None:
    """Print each line of a warning on stderr."""
    for line in warning.splitlines():
        click.echo(f"warning: {line}", err=True)
