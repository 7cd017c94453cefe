"""AsyncClient gives what Client gives; and what both do where servers come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import canned_models
import grpc
import numpy as np
import pytest

from savedmodel_bakery.client import (
    AsyncClient,
    Client,
    ConnectionFailedError,
    DeadlineExceededError,
    RequestRefusedError,
)
from savedmodel_bakery.wire.status import Code, StatusError

X = {"x": np.float32([1, 2])}


async def outcome(asking: Any) -> Any:
    """What was answered, or the error's type and words."""
    try:
        return await asking
    except Exception as exc:
        return type(exc), str(exc)


def both(peer: Any, ask: Callable[[Any], Any], **options: Any) -> tuple[Any, Any]:
    """The outcome with each client."""

    async def run() -> Any:
        async with AsyncClient(port=peer.grpc_port, **options) as asking:
            return await outcome(ask(asking))

    async def run_blocking(asking: Client) -> Any:
        return ask(asking)

    with Client(port=peer.grpc_port, **options) as asking:
        return asyncio.run(outcome(run_blocking(asking))), asyncio.run(run())


@pytest.mark.parametrize(
    ("ask", "options"),
    [
        pytest.param(lambda c: c.classify_images([b"horse", b"bad"], top_k=2), {}, id="images"),
        pytest.param(lambda c: c.classify_images([]), {}, id="no images"),
        pytest.param(lambda c: c.classify_images([b"bad"]), {}, id="bad image"),
        pytest.param(lambda c: c.metadata(), {}, id="metadata"),
        pytest.param(lambda c: c.status(), {}, id="status"),
        pytest.param(lambda c: c.status(), {"model": "pets"}, id="no model"),
        pytest.param(lambda c: c.predict({"x": [1, "a"]}), {"model": "half_plus_two"}, id="misfit"),
        pytest.param(lambda c: c.predict(X, signature="none"), {"model": "half_plus_two"}, id="no signature"),
        pytest.param(lambda c: c.predict(X, version=-1), {"model": "half_plus_two"}, id="no version"),
        pytest.param(lambda c: c.classify_examples([{}]), {}, id="not served"),
    ],
)
def test_the_outcome_is_that_of_client(peer: Any, ask: Callable[[Any], Any], options: dict[str, Any]) -> None:
    expected, found = both(peer, ask, **options)
    assert expected == found


def test_predictions_are_those_of_client(peer: Any) -> None:
    expected, found = both(peer, lambda c: c.predict({"x": [1.0]}, model="types"))
    assert (expected.model, expected.version, expected.signature) == (found.model, found.version, found.signature)
    assert canned_models.TYPES.keys() == found.outputs.keys()
    for alias, array in expected.arrays.items():
        np.testing.assert_array_equal(array, found.arrays[alias], strict=True)


def test_many_questions_are_open_at_once(peer: Any) -> None:
    async def run() -> list[float]:
        async with AsyncClient(port=peer.grpc_port, model="half_plus_two") as asking:
            found = await asyncio.gather(*(asking.predict({"x": [float(n)]}) for n in range(50)))
        return [float(prediction.outputs["y"][0]) for prediction in found]

    assert [n / 2 + 2 for n in range(50)] == asyncio.run(run())


def test_errors_of_the_way_there_are_those_of_client(peer: Any, closed_port: int) -> None:
    async def ask(**options: Any) -> Any:
        async with AsyncClient(**options) as asking:
            return await asking.predict(X)

    with pytest.raises(ConnectionFailedError, match=f"cannot connect to 127.0.0.1:{closed_port} over gRPC"):
        asyncio.run(ask(port=closed_port))
    with pytest.raises(DeadlineExceededError, match=r"over gRPC within 0\.2 s"):
        asyncio.run(ask(port=peer.grpc_port, model="slow", timeout_s=0.2))


def test_asking_a_closed_client_is_a_runtime_error() -> None:
    async def ask() -> None:
        asking = AsyncClient()
        await asking.close()
        await asking.status()

    with pytest.raises(RuntimeError, match="the client is closed"):
        asyncio.run(ask())


@pytest.fixture(params=["grpc", "rest", "asyncio"])
def ask_status(request: pytest.FixtureRequest, peer: Any) -> Callable[[], Any]:
    """Ask for the status with every kind of client."""

    async def ask() -> Any:
        async with AsyncClient(port=peer.grpc_port, model="half_plus_two") as asking:
            return await asking.status()

    def ask_blocking() -> Any:
        port = {"grpc": {"port": peer.grpc_port}, "rest": {"rest_api_port": peer.rest_port}}[request.param]
        with Client(transport=request.param, model="half_plus_two", **port) as asking:
            return asking.status()

    return (lambda: asyncio.run(ask())) if request.param == "asyncio" else ask_blocking


@pytest.mark.parametrize(
    ("code", "refusals", "asked"),
    [(Code.UNAVAILABLE, 2, 3), (Code.UNAVAILABLE, 9, 4), (Code.RESOURCE_EXHAUSTED, 1, 1), (Code.INTERNAL, 1, 1)],
    ids=["away for a while", "away for good", "too busy", "broken"],
)
def test_only_unavailable_is_tried_again(
    ask_status: Callable[[], Any], peer: Any, monkeypatch: pytest.MonkeyPatch, code: Code, refusals: int, asked: int
) -> None:
    answer, count = peer.status, 0

    def refuse_at_first(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count <= refusals:
            raise StatusError(code, "not now")
        return answer(*arguments)

    monkeypatch.setattr(peer, "status", refuse_at_first)
    if refusals < asked:
        assert 3 == ask_status()[0].version
    else:
        with pytest.raises(RequestRefusedError) as caught:
            ask_status()
        assert (code, "not now") == (caught.value.code, caught.value.message)
    assert asked == count


def test_several_servers_are_asked_in_turn_and_one_that_is_gone_is_left_out(peer: Any) -> None:
    met: list[str] = []

    class Meeting(grpc.ServerInterceptor):
        def __init__(self, name: str) -> None:
            self.name = name

        def intercept_service(self, proceed: Any, details: Any) -> Any:
            met.append(self.name)
            return proceed(details)

    with (
        peer.serve_grpc(interceptors=[Meeting("a")]) as one,
        Client([f"127.0.0.1:{peer.grpc_port}", f"127.0.0.1:{one}"], model="half_plus_two") as asking,
    ):
        while "a" not in met:  # until both are connected
            asking.status()
        met.clear()
        before = peer.requests
        for _ in range(10):
            asking.status()
        assert (5, 10) == (len(met), peer.requests - before)
    with Client([f"127.0.0.1:{one}", f"127.0.0.1:{peer.grpc_port}"], model="half_plus_two") as asking:
        assert [3] * 4 == [asking.status()[0].version for _ in range(4)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"target": ["a.example", "b.example"]},
            "invalid targets a.example:8500, b.example:8500: several",
        ),
        ({"target": ["127.0.0.1", "::1"]}, "several targets must be all IPv4 or all IPv6 addresses"),
        ({"target": []}, "no target: pass at least one"),
        ({"target": ["127.0.0.1", "127.0.0.2"], "transport": "rest"}, '2 targets for transport "rest": it takes one'),
    ],
    ids=["names", "mixed", "none", "rest"],
)
def test_targets_that_cannot_be_asked_in_turn_are_value_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Client(**options)
