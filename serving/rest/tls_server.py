"""Accepts TLS connections, with a limit of their number and of the time of a handshake. uvicorn itself has neither."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

import uvicorn

from savedmodel_bakery.serving.rest.protocol import Protocol, close_longest_idle

_PAUSE_S = 1.0  # while the process can't open another file


class TlsServer(uvicorn.Server):
    """uvicorn's server, with TLS. Takes one listening socket.

    Connections count from their start, because one that never ends its handshake keeps a file open too.

    Args:
        config: of uvicorn, without TLS.
        context: of TLS.
        max_connections: a further one replaces the connection that has been idle for longest, or is closed at once.
        idle: see `Protocol`.
        timeout_s: limit of a handshake in seconds.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        context: ssl.SSLContext,
        *,
        max_connections: int,
        idle: dict[Protocol, None],
        timeout_s: float,
    ) -> None:
        super().__init__(config)
        self._context = context
        self._max_connections = max_connections
        self._idle = idle
        self._timeout_s = timeout_s
        self._handshakes: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        assert sockets
        await super().startup(sockets=[])
        self._accepting = asyncio.create_task(self._accept(sockets[0]))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop to accept connections; return when the running requests have finished."""
        self._accepting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._accepting
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(_PAUSE_S)
                continue
            is_full = len(self.server_state.connections) + len(self._handshakes) >= self._max_connections
            if is_full and not close_longest_idle(self._idle):
                connection.close()
                continue
            task = loop.create_task(self._shake_hands(connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make_protocol, connection, ssl=self._context, ssl_handshake_timeout=self._timeout_s
            )
        except OSError:  # no TLS, no certificate that is accepted, or too slow; the connection is closed
            return

    def _make_protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol
