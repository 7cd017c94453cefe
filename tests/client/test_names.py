"""The public names of the client."""

from __future__ import annotations

import pytest

from savedmodel_bakery import client


def test_the_public_names_are_exactly_these() -> None:
    expected = [
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
    assert expected == client.__all__
    assert expected == [getattr(client, name).__name__ for name in expected]
    assert set(expected) <= set(dir(client))


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'savedmodel_bakery\.client' has no attribute 'Clint'"):
        _ = client.Clint
