"""Replayed goldens; tests/e2e/test_goldens.py replays those of a baked version."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from savedmodel_bakery.client import AccessDeniedError, RequestRefusedError
from savedmodel_bakery.client.goldens import Golden, replay
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import Code

GOLDEN = Golden("serving_default", 1, schema.PredictRequest(), {})


def client_that_raises(error: Exception) -> SimpleNamespace:
    def predict(*_: object, **__: object) -> None:
        raise error

    return SimpleNamespace(predict=predict)


def test_a_refused_request_differs_and_a_refused_token_ends_the_replay() -> None:
    refused = RequestRefusedError(Code.INVALID_ARGUMENT, "no image")
    assert ["INVALID_ARGUMENT: no image"] == replay(GOLDEN, client_that_raises(refused), {})
    with pytest.raises(AccessDeniedError):
        replay(GOLDEN, client_that_raises(AccessDeniedError(Code.UNAUTHENTICATED, "no token")), {})
