"""Bake image models into signed SavedModels, serve them, and call them.

Names are imported on first use, so that `import savedmodel_bakery` needs neither TensorFlow nor numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from savedmodel_bakery.client import (
        AmqpClient,
        AsyncAmqpClient,
        AsyncClient,
        Classification,
        Client,
        ClientError,
        ConnectionFailedError,
        DeadlineExceededError,
        InvalidResponseError,
        Prediction,
        RequestRefusedError,
        ScoredLabel,
        VersionStatus,
    )
    from savedmodel_bakery.exporter.bake import bake
    from savedmodel_bakery.exporter.errors import (
        BakeError,
        LabelError,
        ParityError,
        PublishError,
        RecipeError,
        SourceError,
        VerificationError,
    )
    from savedmodel_bakery.exporter.recipe import Recipe

    __version__: str

__all__ = [
    "AmqpClient",
    "AsyncAmqpClient",
    "AsyncClient",
    "BakeError",
    "Classification",
    "Client",
    "ClientError",
    "ConnectionFailedError",
    "DeadlineExceededError",
    "InvalidResponseError",
    "LabelError",
    "ParityError",
    "Prediction",
    "PublishError",
    "Recipe",
    "RecipeError",
    "RequestRefusedError",
    "ScoredLabel",
    "SourceError",
    "VerificationError",
    "VersionStatus",
    "__version__",
    "bake",
]

# Names of the exporter; all others are the client's.
_EXPORTER_MODULES = {
    "BakeError": "errors",
    "LabelError": "errors",
    "ParityError": "errors",
    "PublishError": "errors",
    "Recipe": "recipe",
    "RecipeError": "errors",
    "SourceError": "errors",
    "VerificationError": "errors",
    "bake": "bake",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("savedmodel-bakery")
    else:
        module = f"exporter.{_EXPORTER_MODULES[name]}" if name in _EXPORTER_MODULES else "client"
        value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
