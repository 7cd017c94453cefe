"""How failed calls of a load are counted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from savedmodel_bakery import errors
from savedmodel_bakery.client.calls import ModelSpec
from savedmodel_bakery.client.load.generator import CallFailedError
from savedmodel_bakery.client.load.target import Exchange, Target
from savedmodel_bakery.wire.status import Code


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.ConnectionFailedError("down"), "cannot connect"),
        (errors.TlsHandshakeError("expired"), "cannot connect"),
        (errors.DeadlineExceededError("slow"), "DEADLINE_EXCEEDED"),
        (errors.InvalidResponseError("junk"), "invalid response"),
        (errors.RequestRefusedError(Code.RESOURCE_EXHAUSTED, "overloaded"), "RESOURCE_EXHAUSTED"),
        (errors.AccessDeniedError(Code.UNAUTHENTICATED, "no token"), "UNAUTHENTICATED"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_error_has_a_status(error: errors.ClientError, status: str) -> None:
    def fail() -> bytes:
        raise error

    transport = SimpleNamespace(prepare=lambda _: fail, close=lambda: None)
    target = Target(lambda: transport, ModelSpec("m"), signature="s", atol=0)
    target._exchanges.append(Exchange(None, b"", {}))
    with target.open_caller() as send, pytest.raises(CallFailedError) as caught:
        send(0)
    assert (status, str(error)) == (caught.value.status, caught.value.message)
