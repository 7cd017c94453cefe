"""Bake image models into signed SavedModels, serve them, and call them.

Names are imported on first use, so that `import savedmodel_bakery` needs neither TensorFlow nor numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from savedmodel_bakery import client

if TYPE_CHECKING:
    from savedmodel_bakery.client import *  # noqa: F403 - the names in its __all__
    from savedmodel_bakery.errors import (
        BakeError,
        LabelError,
        ParityError,
        PublishError,
        RecipeError,
        SourceError,
        VerificationError,
    )
    from savedmodel_bakery.exporter.bake import bake
    from savedmodel_bakery.exporter.recipe import Recipe
    from savedmodel_bakery.local_transport import LocalTransport

    __version__: str

__all__ = [
    "BakeError",
    "LabelError",
    "LocalTransport",
    "ParityError",
    "PublishError",
    "Recipe",
    "RecipeError",
    "SourceError",
    "VerificationError",
    "__version__",
    "bake",
]
__all__ += client.__all__

_MODULES = {"LocalTransport": "local_transport", "Recipe": "exporter.recipe", "bake": "exporter.bake"}
"""Where names are; the others are errors or the client's."""


if not TYPE_CHECKING:  # or type checkers would accept every name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            value: Any = version("savedmodel-bakery")
        elif name in client.__all__:
            value = getattr(client, name)
        elif name in __all__:
            value = getattr(import_module(f"savedmodel_bakery.{_MODULES.get(name, 'errors')}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
