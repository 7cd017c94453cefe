"""The cause of an error that a client raises."""

from __future__ import annotations

from savedmodel_bakery.client.calls import first_cause
from savedmodel_bakery.errors import ConnectionFailedError


def test_causes_may_be_a_circle() -> None:
    """As those of aiormq over TLS are."""
    error, reset, refused = ConnectionFailedError("away"), ConnectionResetError(), ConnectionRefusedError()
    error.__cause__, reset.__cause__, refused.__cause__ = reset, refused, reset
    assert first_cause(error) is refused
