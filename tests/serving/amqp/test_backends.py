"""Calls wait while the model server is unreachable."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from amqp_worker import answering_server
from server_process import free_port

from savedmodel_bakery.client.servers import parse_server
from savedmodel_bakery.serving.amqp.backends import Availability, RemoteServer
from savedmodel_bakery.wire.status import Code, StatusError


def test_one_check_serves_all_calls_until_there_is_doubt() -> None:
    error = StatusError(Code.UNAVAILABLE, "no route to host")
    checks = [error, error, None, None]

    async def run() -> list[int]:
        with ThreadPoolExecutor(1) as threads:
            availability = Availability(lambda: checks.pop(0), threads)
            remaining = []
            for _ in range(2):
                await asyncio.gather(*(availability.wait() for _ in range(3)))
                remaining.append(len(checks))
                availability.doubt()
            return remaining

    assert [1, 0] == asyncio.run(run())


def test_a_server_without_health_service_is_reachable_and_a_closed_port_is_not() -> None:
    with answering_server(lambda _: b"") as target:
        remote = RemoteServer(parse_server(target))
        assert remote.check() is None
        remote.close()
    closed = RemoteServer(parse_server(f"127.0.0.1:{free_port()}"))
    error = closed.check()
    closed.close()
    assert error is not None
    assert (Code.UNAVAILABLE, True) == (error.code, "Connection refused" in error.message)
