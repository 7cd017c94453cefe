"""Ask a TensorFlow Serving endpoint over gRPC or REST, without TensorFlow.

Names are loaded when they are first used, so that a command line can answer `--help` without numpy.
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

_HOMES = {
    "AsyncClient": "savedmodel_bakery.client.aio",
    "Classification": "savedmodel_bakery.client.results",
    "Client": "savedmodel_bakery.client.client",
    "ClientError": "savedmodel_bakery.client.errors",
    "ConnectionFailedError": "savedmodel_bakery.client.errors",
    "DeadlineExceededError": "savedmodel_bakery.client.errors",
    "InvalidResponseError": "savedmodel_bakery.client.errors",
    "Prediction": "savedmodel_bakery.client.results",
    "RequestRefusedError": "savedmodel_bakery.client.errors",
    "ScoredLabel": "savedmodel_bakery.client.results",
    "VersionStatus": "savedmodel_bakery.client.results",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
