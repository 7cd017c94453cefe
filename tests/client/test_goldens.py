"""Replayed goldens; tests/e2e/test_goldens.py replays those of a baked version."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from savedmodel_bakery import AccessDeniedError, RequestRefusedError
from savedmodel_bakery.client.goldens import Golden, replay
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import Code

GOLDEN = Golden("serving_default", 1, schema.PredictRequest(), {})


def client_that_raises(error: Exception) -> SimpleNamespace:
    def predict(*_: object, **__: object) -> None:
        raise error

    return SimpleNamespace(predict=predict)


@pytest.mark.parametrize(
    ("labels", "scores", "differing"),
    [
        pytest.param("abcd", [0.895, 0.05, 0.042, 0.012], [], id="the same"),
        pytest.param("acbd", [0.89, 0.045, 0.044, 0.012], [], id="two labels changed places"),
        pytest.param("abce", [0.89, 0.05, 0.04, 0.01], [], id="another last label with a small score"),
        pytest.param("bacd", [0.89, 0.05, 0.04, 0.01], ["labels"], id="another best label"),
        pytest.param("abcd", [0.87, 0.05, 0.04, 0.01], ["scores"], id="another score"),
    ],
)
def test_labels_may_change_places_if_their_scores_are_within_the_tolerance(
    labels: str, scores: list[float], differing: list[str]
) -> None:
    expected = {"labels": np.array([list("abcd")], object), "scores": np.float32([[0.89, 0.05, 0.04, 0.01]])}
    arrays = {"labels": np.array([list(labels)], object), "scores": np.float32([scores])}
    client = SimpleNamespace(predict=lambda *_, **__: SimpleNamespace(arrays=arrays))
    golden = Golden("top_k", 1, schema.PredictRequest(), expected)
    differences = replay(golden, client, {"scores": 0.01})
    assert differing == [text.split('"')[1] for text in differences]
    strict = replay(golden, client, {"scores": 0.001})
    assert (labels == "abcd") is not any("labels" in text for text in strict)


def test_a_refused_request_differs_and_a_refused_token_ends_the_replay() -> None:
    refused = RequestRefusedError(Code.INVALID_ARGUMENT, "no image")
    assert ["INVALID_ARGUMENT: no image"] == replay(GOLDEN, client_that_raises(refused), {})
    with pytest.raises(AccessDeniedError):
        replay(GOLDEN, client_that_raises(AccessDeniedError(Code.UNAUTHENTICATED, "no token")), {})
