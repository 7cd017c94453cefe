"""Reads the files that a command sends: photos, arrays, and stdin."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from savedmodel_bakery.exits import as_usage_error


def read_file(file: str, purpose: str) -> bytes:
    """Return the content of a file, or of stdin for `-`; `purpose` says what the file is, for the error message."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as exc:
        raise click.UsageError(f"{purpose} {file} cannot be read: {exc.strerror}") from exc


def read_arrays(arguments: Sequence[str]) -> dict[str, Any]:
    """Return inputs by name from arguments of the form [NAME=]FILE; see `array_files.read_input`."""
    from savedmodel_bakery.client.commands.array_files import read_input

    inputs: dict[str, Any] = {}
    for argument in arguments:
        name, _, file = argument.rpartition("=")
        with as_usage_error(ValueError):
            additional = read_input(name or None, read_file(file, "input"), "stdin" if file == "-" else file)
        if duplicates := inputs.keys() & additional.keys():
            raise click.UsageError(f'input "{min(duplicates)}" was given twice')
        inputs |= additional
    return inputs
