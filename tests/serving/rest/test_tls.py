"""Connections whose TLS handshake does not end are limited in number and time."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
import trustme
from server_process import free_port
from waiting import wait_until

from savedmodel_bakery.serving.access.access import Access
from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.call.call import Entrypoint
from savedmodel_bakery.serving.models.registry import Registry
from savedmodel_bakery.serving.rest.router import Router
from savedmodel_bakery.serving.rest.server import RestServer
from savedmodel_bakery.serving.v2.handlers import HttpHandlers

MAX_CONNECTIONS = 3


class Port(NamedTuple):
    """A port with TLS."""

    number: int
    context: ssl.SSLContext

    def connect(self) -> socket.socket:
        """Open a connection without a handshake."""
        return socket.create_connection(("127.0.0.1", self.number), 10)

    def wait_until_healthy(self) -> None:
        """Return when a health request is answered. The server sees a moment later than its clients that they left."""

        def is_healthy() -> bool:
            try:
                with self.context.wrap_socket(self.connect(), server_hostname="localhost") as connection:
                    connection.sendall(b"GET /v2/health/live HTTP/1.0\r\n\r\n")
                    return connection.recv(4096).startswith(b"HTTP/1.1 200 OK")
            except OSError:
                return False

        wait_until(is_healthy)


@pytest.fixture
def port() -> Iterator[Port]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    limits = Limits(connections=MAX_CONNECTIONS, header_timeout_s=1.0)
    admission = Admission(limits, MemoryBudget(), turns=1)
    api = HttpHandlers(Registry(), limits=admission.limits, check_method_names=False)
    router = Router([api.find], access=Access(), cors=False)
    number = free_port()
    server = RestServer(router, "127.0.0.1", number, admission, Entrypoint("REST", str), timeout_s=None, tls=context)
    server.start()
    yield Port(number, client)
    server.stop(5)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except (ConnectionResetError, ssl.SSLEOFError):
        return True


def test_handshakes_that_do_not_end_are_few_and_short(port: Port) -> None:
    waiting = [port.connect() for _ in range(MAX_CONNECTIONS)]
    with port.connect() as excess:
        assert is_closed(excess)
    assert [True] * MAX_CONNECTIONS == [is_closed(connection) for connection in waiting]
    for connection in waiting:
        connection.close()
    port.wait_until_healthy()


def test_a_new_connection_replaces_the_one_that_was_idle_for_longest(port: Port) -> None:
    with ExitStack() as stack:
        idle = []
        for _ in range(MAX_CONNECTIONS):
            connection = port.context.wrap_socket(port.connect(), server_hostname="localhost")
            idle.append(stack.enter_context(connection))
            connection.sendall(b"HEAD /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 OK")
        port.wait_until_healthy()
        assert is_closed(idle[0])
        idle[1].sendall(b"HEAD /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle[1].recv(4096).startswith(b"HTTP/1.1 200 OK")


def test_a_client_without_tls_leaves_nothing_behind(port: Port) -> None:
    for _ in range(2 * MAX_CONNECTIONS):
        with port.connect() as connection:
            connection.sendall(b"GET /v2/health/live HTTP/1.0\r\n\r\n")
            assert is_closed(connection)
    port.wait_until_healthy()


def test_a_request_that_arrives_with_the_end_of_the_handshake_is_answered(port: Port) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client: Any = port.context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with port.connect() as connection:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(65536))
        client.write(b"GET /v2/health/live HTTP/1.0\r\n\r\n")
        connection.sendall(outgoing.read())  # the end of the handshake and the request in one segment
        received = b""

        def has_response() -> bool:
            nonlocal received
            incoming.write(connection.recv(65536))
            try:
                received += client.read(65536)
            except ssl.SSLWantReadError:
                return False
            return True

        wait_until(has_response)
    assert received.startswith(b"HTTP/1.1 200 OK")
