"""Bake image models into signed SavedModels, serve them, and call them.

Names are loaded on first use, so that `import savedmodel_bakery` needs neither TensorFlow nor numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from savedmodel_bakery.client.aio import AsyncClient
    from savedmodel_bakery.client.client import Client
    from savedmodel_bakery.client.errors import (
        ClientError,
        ConnectionFailedError,
        DeadlineExceededError,
        InvalidResponseError,
        RequestRefusedError,
    )
    from savedmodel_bakery.client.results import Classification, Prediction, ScoredLabel, VersionStatus

__all__ = [
    "AsyncClient",
    "Classification",
    "Client",
    "ClientError",
    "ConnectionFailedError",
    "DeadlineExceededError",
    "InvalidResponseError",
    "Prediction",
    "RequestRefusedError",
    "ScoredLabel",
    "VersionStatus",
]

_MODULES = {
    "AsyncClient": "client.aio",
    "Classification": "client.results",
    "Client": "client.client",
    "ClientError": "client.errors",
    "ConnectionFailedError": "client.errors",
    "DeadlineExceededError": "client.errors",
    "InvalidResponseError": "client.errors",
    "Prediction": "client.results",
    "RequestRefusedError": "client.errors",
    "ScoredLabel": "client.results",
    "VersionStatus": "client.results",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
