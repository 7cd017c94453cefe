"""A TCP proxy on loopback that can answer slowly, wrongly or partly."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType

from server_process import free_port

FAULTS = ("silent", "garbage", "cut", "slow")
"""Answers are swallowed; replaced by other bytes; end, with the connection, after half of the first piece; or arrive in
pieces of a few bytes with pauses, so that bytes keep coming beyond a caller's time limit."""

_PIECE_BYTES = 16


class FaultyProxy:
    """Forwards connections to a port until the end of the `with` block.

    Args:
        upstream_port: of the server.

    Attributes:
        port: to connect to.
        pause_s: between the pieces of a slow answer.
    """

    def __init__(self, upstream_port: int) -> None:
        self.pause_s = 0.5
        self.port = free_port()
        self._upstream_port = upstream_port
        self._fault = ""
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))

    def set_fault(self, fault: str) -> None:
        """Apply one of `FAULTS`, or none, to all answers from now on; open connections are closed."""
        self._fault = fault
        self._close_connections()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                caller, _ = self._listener.accept()
                upstream = socket.create_connection(("127.0.0.1", self._upstream_port), 10)
                upstream.settimeout(None)
                self._sockets += [caller, upstream]
                for source, sink, is_answer in ((caller, upstream, False), (upstream, caller, True)):
                    threading.Thread(target=self._forward, args=(source, sink, is_answer), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while content := source.recv(2**16):
                fault = self._fault if is_answer else ""
                if fault == "garbage":
                    content = bytes(255 - byte for byte in content)
                elif fault == "cut":
                    sink.sendall(content[: len(content) // 2])
                    break
                if fault == "slow":
                    for start in range(0, len(content), _PIECE_BYTES):
                        time.sleep(self.pause_s)
                        sink.sendall(content[start : start + _PIECE_BYTES])
                elif fault != "silent":
                    sink.sendall(content)
        _close(source, sink)

    def _close_connections(self) -> None:
        sockets, self._sockets = self._sockets, []
        _close(*sockets)

    def __enter__(self) -> FaultyProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _close(self._listener)
        self._close_connections()


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
