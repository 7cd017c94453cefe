"""Calls a TensorFlow Serving endpoint over gRPC, REST or AMQP, or a server of the v2 protocol, without TensorFlow.

The public names are those in `__all__`; they are imported on first use, so that `--help` does not import numpy.
`exporter` may use `bulk.files`, `bulk.photos` and `bulk.sources`. `serving` may use the modules `bulk` (all but `job`
and `progress`), `calls`, `credentials`, `endpoints`, `errors`, `image_results`, `images`, `results`, `servers`,
`signatures`, `tasks`, and of `transports` `amqp_broker`, `grpc_channel`, `grpc_codec`, `retries` and `transport`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from savedmodel_bakery.client.aio import AsyncAmqpClient, AsyncClient
    from savedmodel_bakery.client.client import AmqpClient, Client
    from savedmodel_bakery.client.credentials import Tls
    from savedmodel_bakery.client.errors import (
        AccessDeniedError,
        ClientError,
        ConnectionFailedError,
        DeadlineExceededError,
        InvalidResponseError,
        RequestRefusedError,
        TlsHandshakeError,
    )
    from savedmodel_bakery.client.image_results import (
        Box,
        Classification,
        Detections,
        Embedding,
        Regression,
        ScoredLabel,
        Segmentation,
        Tag,
        Tags,
    )
    from savedmodel_bakery.client.results import Prediction, VersionStatus

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

_MODULES = {
    "AccessDeniedError": "errors",
    "AmqpClient": "client",
    "AsyncAmqpClient": "aio",
    "AsyncClient": "aio",
    "Box": "image_results",
    "Classification": "image_results",
    "Client": "client",
    "ClientError": "errors",
    "ConnectionFailedError": "errors",
    "DeadlineExceededError": "errors",
    "Detections": "image_results",
    "Embedding": "image_results",
    "InvalidResponseError": "errors",
    "Prediction": "results",
    "Regression": "image_results",
    "RequestRefusedError": "errors",
    "ScoredLabel": "image_results",
    "Segmentation": "image_results",
    "Tag": "image_results",
    "Tags": "image_results",
    "Tls": "credentials",
    "TlsHandshakeError": "errors",
    "VersionStatus": "results",
}


if not TYPE_CHECKING:  # or type checkers would accept every name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"savedmodel_bakery.client.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
