"""AsyncClient has the results of Client, and both retry and balance calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import canned_models
import grpc
import numpy as np
import pytest

from savedmodel_bakery import (
    AsyncClient,
    Client,
    ConnectionFailedError,
    DeadlineExceededError,
    RequestRefusedError,
)
from savedmodel_bakery.wire.status import Code, StatusError

X = {"x": np.float32([1, 2])}


async def outcome(client: Any) -> Any:
    """Return the result of a call, or the type and message of its error."""
    try:
        return await client
    except Exception as exc:
        return type(exc), str(exc)


def both(peer: Any, send: Callable[[Any], Any], **options: Any) -> tuple[Any, Any]:
    """Return the outcome with each client."""
    options = {"model": "efficientnet_lite0", **options}

    async def run() -> Any:
        async with AsyncClient(port=peer.grpc_port, **options) as client:
            return await outcome(send(client))

    async def run_blocking(client: Client) -> Any:
        return send(client)

    with Client(port=peer.grpc_port, **options) as client:
        return asyncio.run(outcome(run_blocking(client))), asyncio.run(run())


@pytest.mark.parametrize(
    ("send", "options"),
    [
        pytest.param(lambda c: c.classify([b"horse", b"bad"], top_k=2), {}, id="images"),
        pytest.param(lambda c: c.classify([]), {}, id="no images"),
        pytest.param(lambda c: c.classify(b"bad"), {}, id="bad image"),
        pytest.param(lambda c: c.tags([b"horse", b"bad"]), {"model": "tagger"}, id="tags"),
        pytest.param(lambda c: c.detect(b"horse"), {"model": "detector"}, id="boxes"),
        pytest.param(lambda c: c.segment((b"horse",)), {"model": "segmenter"}, id="map"),
        pytest.param(lambda c: c.regress(b"horse"), {"model": "meter"}, id="numbers"),
        pytest.param(lambda c: c.detect(b"horse"), {"model": "tagger"}, id="other task"),
        pytest.param(lambda c: c.metadata(), {}, id="metadata"),
        pytest.param(lambda c: c.status(), {}, id="status"),
        pytest.param(lambda c: c.status(), {"model": "pets"}, id="no model"),
        pytest.param(lambda c: c.predict({"x": [1, "a"]}), {"model": "half_plus_two"}, id="misfit"),
        pytest.param(lambda c: c.predict(X, signature="none"), {"model": "half_plus_two"}, id="no signature"),
        pytest.param(lambda c: c.predict(X, version=-1), {"model": "half_plus_two"}, id="no version"),
        pytest.param(lambda c: c.classify_examples([{}]), {}, id="not served"),
        pytest.param(lambda c: c.regress_examples([{"x": 3.0}]), {}, id="regress"),
    ],
)
def test_the_outcome_is_that_of_client(peer: Any, send: Callable[[Any], Any], options: dict[str, Any]) -> None:
    expected, actual = both(peer, send, **options)
    assert expected == actual


def test_without_a_name_the_only_model_is_called(peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ", ".join(sorted(peer.model_names()))
    error = ValueError, f"the server has several models: pass one of {names} with model="
    assert (error, error) == both(peer, lambda c: c.status(), model=None)
    of_call, _ = both(peer, lambda c: c.predict(X, model="half_plus_two"), model=None)
    assert "half_plus_two" == of_call.model
    monkeypatch.setattr(peer, "model_names", lambda: ["tagger"])
    expected, actual = both(peer, lambda c: c.tags(b"horse"), model=None)
    assert ["sky", "sea"] == [tag.label for tag in expected.tags]
    assert expected == actual


def test_embeddings_are_those_of_client(peer: Any) -> None:
    expected, actual = both(peer, lambda c: c.embed(b"horse"), model="embedder")
    np.testing.assert_array_equal(expected.vector, actual.vector, strict=True)


def test_predictions_are_those_of_client(peer: Any) -> None:
    expected, actual = both(peer, lambda c: c.predict({"x": [1.0]}, model="types"))
    assert (expected.model, expected.version, expected.signature) == (actual.model, actual.version, actual.signature)
    assert canned_models.TYPES.keys() == actual.outputs.keys()
    for alias, array in expected.arrays.items():
        np.testing.assert_array_equal(array, actual.arrays[alias], strict=True)


def test_many_calls_run_at_the_same_time(peer: Any) -> None:
    async def run() -> list[float]:
        async with AsyncClient(port=peer.grpc_port, model="half_plus_two") as client:
            predictions = await asyncio.gather(*(client.predict({"x": [float(n)]}) for n in range(50)))
        return [float(prediction.outputs["y"][0]) for prediction in predictions]

    assert [n / 2 + 2 for n in range(50)] == asyncio.run(run())


def test_connection_errors_are_those_of_client(peer: Any, closed_port: int) -> None:
    async def send(**options: Any) -> Any:
        async with AsyncClient(**options) as client:
            return await client.predict(X)

    with pytest.raises(ConnectionFailedError, match=f"cannot connect to 127.0.0.1:{closed_port} over gRPC"):
        asyncio.run(send(port=closed_port))
    with pytest.raises(DeadlineExceededError, match=r"over gRPC within 0\.2 s"):
        asyncio.run(send(port=peer.grpc_port, model="slow", timeout_s=0.2))


def test_calls_of_a_closed_client_are_runtime_errors() -> None:
    async def send() -> None:
        client = AsyncClient()
        await client.close()
        await client.status()

    with pytest.raises(RuntimeError, match="the client is closed"):
        asyncio.run(send())


def test_another_event_loop_is_a_runtime_error(peer: Any) -> None:
    client = AsyncClient(port=peer.grpc_port)
    asyncio.run(outcome(client.status()))
    with pytest.raises(RuntimeError, match="each loop needs a client of its own"):
        asyncio.run(client.status())


@pytest.fixture(params=["grpc", "rest", "asyncio"])
def get_status(request: pytest.FixtureRequest, peer: Any) -> Callable[[], Any]:
    """Get the status with each client."""

    async def send() -> Any:
        async with AsyncClient(port=peer.grpc_port, model="half_plus_two") as client:
            return await client.status()

    def get_blocking() -> Any:
        port = {"grpc": {"port": peer.grpc_port}, "rest": {"rest_api_port": peer.rest_port}}[request.param]
        with Client(transport=request.param, model="half_plus_two", **port) as client:
            return client.status()

    return (lambda: asyncio.run(send())) if request.param == "asyncio" else get_blocking


@pytest.mark.parametrize(
    ("code", "refusals", "calls"),
    [(Code.UNAVAILABLE, 2, 3), (Code.UNAVAILABLE, 9, 4), (Code.RESOURCE_EXHAUSTED, 1, 1), (Code.INTERNAL, 1, 1)],
    ids=["away for a while", "away for good", "too busy", "broken"],
)
def test_only_unavailable_is_retried(
    get_status: Callable[[], Any], peer: Any, monkeypatch: pytest.MonkeyPatch, code: Code, refusals: int, calls: int
) -> None:
    status_of, count = peer.status, 0

    def refuse_at_first(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count <= refusals:
            raise StatusError(code, "not now")
        return status_of(*arguments)

    monkeypatch.setattr(peer, "status", refuse_at_first)
    if refusals < calls:
        assert 3 == get_status()[0].version
    else:
        with pytest.raises(RequestRefusedError) as caught:
            get_status()
        assert (code, "not now") == (caught.value.code, caught.value.message)
    assert calls == count


def test_calls_are_balanced_over_several_servers_without_those_that_are_gone(peer: Any) -> None:
    called: list[str] = []

    class Recorder(grpc.ServerInterceptor):
        def __init__(self, name: str) -> None:
            self.name = name

        def intercept_service(self, proceed: Any, details: Any) -> Any:
            called.append(self.name)
            return proceed(details)

    with (
        peer.serve_grpc(interceptors=[Recorder("a")]) as port,
        Client([f"127.0.0.1:{peer.grpc_port}", f"127.0.0.1:{port}"], model="half_plus_two") as client,
    ):
        while "a" not in called:  # until both are connected
            client.status()
        called.clear()
        before = peer.requests
        for _ in range(10):
            client.status()
        assert (5, 10) == (len(called), peer.requests - before)
    with Client([f"127.0.0.1:{port}", f"127.0.0.1:{peer.grpc_port}"], model="half_plus_two") as client:
        assert [3] * 4 == [client.status()[0].version for _ in range(4)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": ["a.example", "b.example"]}, "invalid targets a.example:8500, b.example:8500: several"),
        ({"target": ["127.0.0.1", "::1"]}, "several targets must be all IPv4 or all IPv6 addresses"),
        ({"target": []}, "no target: pass at least one"),
        ({"target": ["127.0.0.1", "127.0.0.2"], "transport": "rest"}, '2 targets for transport "rest": it takes one'),
    ],
    ids=["names", "mixed", "none", "rest"],
)
def test_invalid_lists_of_targets_are_value_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Client(**options)
