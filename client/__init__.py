"""Calls a TensorFlow Serving endpoint over gRPC, REST or AMQP, or a server of the v2 protocol, without TensorFlow.

The public names are those in `__all__`; they are imported on first use, so that `--help` does not import numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from savedmodel_bakery.answers.predictions import Prediction
    from savedmodel_bakery.answers.tasks.labels import Classification, ScoredLabel, Tag, Tags
    from savedmodel_bakery.answers.tasks.numbers import Embedding, Regression
    from savedmodel_bakery.answers.tasks.regions import Box, Detections, Segmentation
    from savedmodel_bakery.client.aio import AsyncClient
    from savedmodel_bakery.client.amqp_clients import AmqpClient, AsyncAmqpClient
    from savedmodel_bakery.client.calls import VersionStatus
    from savedmodel_bakery.client.client import Client
    from savedmodel_bakery.client.credentials import Tls
    from savedmodel_bakery.errors import (
        AccessDeniedError,
        ClientError,
        ConnectionFailedError,
        DeadlineExceededError,
        InvalidResponseError,
        RequestRefusedError,
        TlsHandshakeError,
    )

__all__ = [
    "AccessDeniedError",
    "AmqpClient",
    "AsyncAmqpClient",
    "AsyncClient",
    "Box",
    "Classification",
    "Client",
    "ClientError",
    "ConnectionFailedError",
    "DeadlineExceededError",
    "Detections",
    "Embedding",
    "InvalidResponseError",
    "Prediction",
    "Regression",
    "RequestRefusedError",
    "ScoredLabel",
    "Segmentation",
    "Tag",
    "Tags",
    "Tls",
    "TlsHandshakeError",
    "VersionStatus",
]

_NAMES = {
    "answers.predictions": ("Prediction",),
    "answers.tasks.labels": ("Classification", "ScoredLabel", "Tag", "Tags"),
    "answers.tasks.numbers": ("Embedding", "Regression"),
    "answers.tasks.regions": ("Box", "Detections", "Segmentation"),
    "client.aio": ("AsyncClient",),
    "client.amqp_clients": ("AmqpClient", "AsyncAmqpClient"),
    "client.calls": ("VersionStatus",),
    "client.client": ("Client",),
    "client.credentials": ("Tls",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


if not TYPE_CHECKING:  # or type checkers would accept every name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"savedmodel_bakery.{_MODULES.get(name, 'errors')}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
