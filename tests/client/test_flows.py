"""When a client fetches metadata, and what it checks against them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import canned_models
import numpy as np
import pytest

from savedmodel_bakery import Client, RequestRefusedError

Connect = Callable[..., Client]
X = {"x": np.float32([1])}


def test_metadata_are_fetched_once(peer: Any) -> None:
    with Client(transport="rest", rest_api_port=peer.rest_port, model="half_plus_two") as client:
        before = peer.requests
        client.metadata()
        client.predict(X)
        client.predict(X)
    assert 3 == peer.requests - before


def test_metadata_are_fetched_again_if_the_outputs_of_a_new_version_do_not_match(
    peer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(transport="rest", rest_api_port=peer.rest_port, model="half_plus_two") as client:
        client.predict(X)
        monkeypatch.setitem(canned_models.MODELS, "half_plus_two", canned_models.MODELS["types"])
        assert canned_models.TYPES.keys() == client.predict(X).outputs.keys()


def test_metadata_are_fetched_again_if_another_version_responds(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inputs of the new version are known after at most one call to it."""
    client = connect("half_plus_two")
    client.predict(X)
    doubled = canned_models.Model(
        {"serving_default": canned_models.signature_of({"z": "DT_FLOAT"}, {"y": "DT_FLOAT"})}, None
    )
    monkeypatch.setitem(canned_models.MODELS, "half_plus_two", doubled)
    with pytest.raises(RequestRefusedError, match=r'input "z" is missing; .* takes z: float32'):
        client.predict({"x": np.float32([1]), "q": 1})


def test_metadata_are_fetched_once_more_for_inputs_that_do_not_match(connect: Connect, peer: Any) -> None:
    client = connect("half_plus_two")
    client.predict(X)
    before = peer.requests
    with pytest.raises(RequestRefusedError, match="takes x: float32"):
        client.predict({"x": "one"})
    assert 1 == peer.requests - before


def test_an_element_type_that_tensors_lack_is_refused(connect: Connect) -> None:
    with pytest.raises(RequestRefusedError, match=r"^INVALID_ARGUMENT: cannot send an array of datetime64\[D\]"):
        connect().predict({"x": np.array(["2026-01-01"], "datetime64[D]")})
