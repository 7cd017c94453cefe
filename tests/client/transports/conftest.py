"""Fixtures for the tests of transports."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def respond_with() -> Iterator[Callable[[str], int]]:
    """Listen on a free port and send the same bytes to every request."""
    listeners = []
    threads = []

    def listen(response: str) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(response.encode())

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return listener.getsockname()[1]

    yield listen
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join()
