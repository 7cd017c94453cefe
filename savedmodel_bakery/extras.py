"""Names the extra that installs a missing package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def naming_extra(feature: str, extra: str) -> Iterator[None]:
    """Add the extra to install to the message of a ModuleNotFoundError.

    Args:
        feature: what needs the package.
        extra: name of the extra of this distribution.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        raise ModuleNotFoundError(
            f"{feature} needs {exc.name}, which is not installed; try: pip install 'savedmodel-bakery[{extra}]'",
            name=exc.name,
        ) from exc
