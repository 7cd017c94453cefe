"""What the command line is given to send: files, stdin, and arrays in them. Must not know a server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click


def read_file(file: str, kind: str) -> bytes:
    """The content of a file, or of stdin for `-`.

    Raises:
        click.UsageError: it can't be read; `kind` is what it is called.
    """
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as exc:
        raise click.UsageError(f"{kind} {file} cannot be read: {exc.strerror}") from exc


def read_arrays(given: Sequence[str]) -> dict[str, Any]:
    """Inputs by name, from [NAME=]FILE each; see `client.array_files.read_input`.

    Raises:
        click.UsageError: one can't be read, or stands there twice.
    """
    from savedmodel_bakery.client.commands.array_files import read_input

    tree: dict[str, Any] = {}
    for text in given:
        name, _, file = text.rpartition("=")
        try:
            found = read_input(name or None, read_file(file, "input"), "stdin" if file == "-" else file)
        except ValueError as exc:
            raise click.UsageError(str(exc)) from exc
        if twice := tree.keys() & found.keys():
            raise click.UsageError(f'input "{min(twice)}" was given twice')
        tree |= found
    return tree
