"""Names the extras that install a missing package. Imports the standard library only."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_DISTRIBUTION = "savedmodel-bakery"
_ROOT = Path(__file__).parent.parent


class MissingPackageError(ModuleNotFoundError):
    """A package of an extra is not installed. The message states the command that installs it."""


@contextmanager
def naming_extras(feature: str, *extras: str) -> Iterator[None]:
    """Turn a ModuleNotFoundError into a MissingPackageError that names all extras that `feature` needs.

    A MissingPackageError that is raised in the block is raised unchanged.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if isinstance(error, MissingPackageError) or (error.name or "").startswith("savedmodel_bakery"):
            raise
        package = str(error.name).partition(".")[0]
        raise MissingPackageError(missing_package(feature, package, *extras), name=error.name) from error


def missing_package(feature: str, package: str, *extras: str) -> str:
    """Return the message that a package of these extras is not installed."""
    return f"{feature} needs {package}, which is not installed; try: {install_command(*extras)}"


def install_command(*extras: str) -> str:
    """Return the command that installs extras: from the clone if the package is imported from one, else by name."""
    source = _DISTRIBUTION
    with suppress(OSError):  # an editable installation imports the package from the clone too
        if f'name = "{_DISTRIBUTION}"' in (_ROOT / "pyproject.toml").read_text(encoding="utf-8"):
            source = "." if Path.cwd() == _ROOT.resolve() else str(_ROOT.resolve())
    requirement = f"{source}[{','.join(extras)}]"
    return f"pip install {shlex.quote(requirement)}"
