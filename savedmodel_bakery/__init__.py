"""Bake image models into signed SavedModels, serve them, and call them.

Names are imported on first use, so that `import savedmodel_bakery` needs neither TensorFlow nor numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from savedmodel_bakery.answers.images import to_srgb
    from savedmodel_bakery.answers.predictions import Prediction
    from savedmodel_bakery.answers.tasks.heads import Heads
    from savedmodel_bakery.answers.tasks.keypoints import Keypoint, Keypoints
    from savedmodel_bakery.answers.tasks.labels import Classification, ScoredLabel, Tag, Tags
    from savedmodel_bakery.answers.tasks.numbers import Embedding, Regression, Tensors
    from savedmodel_bakery.answers.tasks.regions import Box, Detections, Picture, Segmentation
    from savedmodel_bakery.client.aio import AsyncClient
    from savedmodel_bakery.client.amqp_clients import AmqpClient, AsyncAmqpClient
    from savedmodel_bakery.client.calls import VersionStatus
    from savedmodel_bakery.client.client import Client
    from savedmodel_bakery.client.credentials import Tls
    from savedmodel_bakery.errors import (
        AccessDeniedError,
        BakeError,
        ClientError,
        ConnectionFailedError,
        DeadlineExceededError,
        InvalidResponseError,
        LabelError,
        ParityError,
        PublishError,
        RecipeError,
        RequestRefusedError,
        SourceError,
        TlsHandshakeError,
        VerificationError,
    )
    from savedmodel_bakery.exporter.bake import bake
    from savedmodel_bakery.exporter.recipe import Recipe
    from savedmodel_bakery.local_transport import LocalTransport

    __version__: str

__all__ = [
    "AccessDeniedError",
    "AmqpClient",
    "AsyncAmqpClient",
    "AsyncClient",
    "BakeError",
    "Box",
    "Classification",
    "Client",
    "ClientError",
    "ConnectionFailedError",
    "DeadlineExceededError",
    "Detections",
    "Embedding",
    "Heads",
    "InvalidResponseError",
    "Keypoint",
    "Keypoints",
    "LabelError",
    "LocalTransport",
    "ParityError",
    "Picture",
    "Prediction",
    "PublishError",
    "Recipe",
    "RecipeError",
    "Regression",
    "RequestRefusedError",
    "ScoredLabel",
    "Segmentation",
    "SourceError",
    "Tag",
    "Tags",
    "Tensors",
    "Tls",
    "TlsHandshakeError",
    "VerificationError",
    "VersionStatus",
    "__version__",
    "bake",
    "to_srgb",
]

_MODULES = {
    "AmqpClient": "client.amqp_clients",
    "AsyncAmqpClient": "client.amqp_clients",
    "AsyncClient": "client.aio",
    "Box": "answers.tasks.regions",
    "Classification": "answers.tasks.labels",
    "Client": "client.client",
    "Detections": "answers.tasks.regions",
    "Embedding": "answers.tasks.numbers",
    "Heads": "answers.tasks.heads",
    "Keypoint": "answers.tasks.keypoints",
    "Keypoints": "answers.tasks.keypoints",
    "LocalTransport": "local_transport",
    "Picture": "answers.tasks.regions",
    "Prediction": "answers.predictions",
    "Recipe": "exporter.recipe",
    "Regression": "answers.tasks.numbers",
    "ScoredLabel": "answers.tasks.labels",
    "Segmentation": "answers.tasks.regions",
    "Tag": "answers.tasks.labels",
    "Tags": "answers.tasks.labels",
    "Tensors": "answers.tasks.numbers",
    "Tls": "client.credentials",
    "VersionStatus": "client.calls",
    "bake": "exporter.bake",
    "to_srgb": "answers.images",
}
"""The modules of the names that are not in `errors`."""


if not TYPE_CHECKING:  # or type checkers would accept every name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "__version__":
            from importlib.metadata import version

            value: Any = version("savedmodel-bakery")
        else:
            value = getattr(import_module(f"savedmodel_bakery.{_MODULES.get(name, 'errors')}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
