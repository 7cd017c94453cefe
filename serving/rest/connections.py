"""The open connections of a port: room for new ones, requests that arrive too slowly, TLS, and the end of all."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.limits import RETRY_AFTER_S, Limits, OverloadError
from savedmodel_bakery.serving.rest.exchange import Exchange

# Longer than load balancers keep idle connections; the real server never closes them.
_KEEP_ALIVE_S = 3600
_STILL_BYTES = 2**16  # what a body that stands still may hold, whoever waits
_POLL_S = 0.1
_PAUSE_S = 1.0  # while the process can't open another file


class OpenConnection(Protocol):
    """What is used of a `Connection`."""

    transport: asyncio.Transport

    def check_time(self, now: float) -> None:
        """End what takes too long."""

    def receiving(self) -> Exchange | None:
        """Return the exchange that is served while its body arrives."""

    def unread_bytes(self, now: float) -> int:
        """Return how much of a response the client has not read, if it has had some time for it; else 0."""

    def shutdown(self) -> None:
        """Close the connection, after the responses to what has arrived."""


class Connections:
    """The open connections of a port."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open: set[OpenConnection] = set()
        self.idle: dict[OpenConnection, float] = {}  # that wait for another request, the longest first; since when
        self.tasks: set[asyncio.Task[None]] = set()

    def make_room(self, others: int = 0) -> bool:
        """Return whether there is room for a new connection; if necessary, close the one that is idle for longest.

        `others` are connections that count, but are not open yet.
        """
        if len(self.open) + others < self.limits.connections:
            return True
        longest = next(iter(self.idle), None)
        if longest is None:
            return False
        del self.idle[longest]
        longest.transport.abort()  # closing may wait for the client
        return True

    def check_times(self, now: float, memory: MemoryBudget) -> None:
        """End what takes too long. Call it every second.

        While requests wait for memory, the largest one whose body stands still gives its memory back, and so does the
        largest response that its client reads slowly.
        """
        for connection, since in list(self.idle.items()):
            if now - since > _KEEP_ALIVE_S:
                connection.transport.abort()
        for connection in list(self.open):
            connection.check_time(now)
        if memory.queued:
            exchanges = [exchange for connection in self.open if (exchange := connection.receiving())]
            largest = max(exchanges, key=lambda exchange: exchange.still_bytes(now), default=None)
            if largest and largest.still_bytes(now) > _STILL_BYTES:
                error = "other requests wait for the memory of this one, whose body stands still"
                largest.fail(OverloadError(error, RETRY_AFTER_S, limit="memory_budget_bytes"))
            slowest = max(self.open, key=lambda connection: connection.unread_bytes(now), default=None)
            if slowest and slowest.unread_bytes(now):
                slowest.transport.abort()

    async def shutdown(self, grace_s: float) -> None:
        """Close the connections when their requests have been answered, but all of them after the grace period."""
        for connection in list(self.open):
            connection.shutdown()
        end = asyncio.get_running_loop().time() + grace_s
        while self.open and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(_POLL_S)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def accept_tls(
    listening: socket.socket,
    context: ssl.SSLContext,
    connections: Connections,
    make_connection: Callable[[], asyncio.Protocol],
) -> None:
    """Accept TLS connections until this is cancelled; asyncio limits neither their number nor the time of a handshake.

    They count from their start, because one that never ends its handshake keeps a file open too. If there are too many,
    a further one replaces the connection that has been idle for longest, or is closed at once.
    """
    loop = asyncio.get_running_loop()
    listening.setblocking(False)
    handshakes: set[asyncio.Task[None]] = set()
    while True:
        try:
            connection, _ = await loop.sock_accept(listening)
        except OSError:
            await asyncio.sleep(_PAUSE_S)
            continue
        if not connections.make_room(len(handshakes)):
            connection.close()
            continue
        task = loop.create_task(_shake_hands(connection, context, connections.limits.header_timeout_s, make_connection))
        handshakes.add(task)
        task.add_done_callback(handshakes.discard)


async def _shake_hands(
    connection: socket.socket,
    context: ssl.SSLContext,
    timeout_s: float,
    make_connection: Callable[[], asyncio.Protocol],
) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(
            make_connection, connection, ssl=context, ssl_handshake_timeout=timeout_s
        )
    except OSError:  # no TLS, no certificate that is accepted, or too slow; the connection is closed
        return
