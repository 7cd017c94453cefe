"""Accepts TLS connections, with a limit of their number and of the time of a handshake; asyncio has neither."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from savedmodel_bakery.serving.rest.connections import Connections

_PAUSE_S = 1.0  # while the process can't open another file


async def accept(
    listening: socket.socket,
    context: ssl.SSLContext,
    connections: Connections,
    make_connection: Callable[[], asyncio.Protocol],
) -> None:
    """Accept connections until this is cancelled.

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
