"""A RabbitMQ broker: where it is, how it is connected to, and the words for failing at it. Must not know a model.

A URL says it all, as the library has it: `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps://` for TLS, with
`?cafile=…&certfile=…&keyfile=…` where the system's authorities don't do, or the broker asks for a certificate. Its
password is in no text of this module's.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLCertVerificationError, SSLError

import aio_pika
from aio_pika import exceptions
from aio_pika.abc import AbstractConnection
from pamqp.common import FieldTable
from pamqp.exceptions import PAMQPException
from yarl import URL

from savedmodel_bakery.client.errors import ClientError, ConnectionFailedError, RequestRefusedError
from savedmodel_bakery.client.transports.transport import Endpoint
from savedmodel_bakery.wire.status import Code

# What the library logs about connections it raises as well, and a command line shows once.
logging.getLogger("aiormq.connection").addHandler(logging.NullHandler())
logging.getLogger("aiormq.connection").propagate = False

_PORTS = {"amqp": 5672, "amqps": 5671}
_FILES = ("cafile", "certfile", "keyfile")
# What a broker's words begin with when it closes a channel or a connection, or doesn't open one.
_CODES = {
    "ACCESS_REFUSED": Code.PERMISSION_DENIED,
    "NOT_ALLOWED": Code.PERMISSION_DENIED,
    "NOT_FOUND": Code.NOT_FOUND,
    "PRECONDITION_FAILED": Code.FAILED_PRECONDITION,
    "RESOURCE_LOCKED": Code.FAILED_PRECONDITION,
}
ERRORS = (
    exceptions.AMQPError,
    exceptions.ChannelInvalidStateError,
    PAMQPException,
    OSError,
    asyncio.TimeoutError,  # another one than TimeoutError before Python 3.11
)
"""All that the library raises when a broker, or the way there, doesn't do as it is told."""


@dataclass(frozen=True)
class Broker:
    """One broker and one of its virtual hosts.

    Attributes:
        url: with user and password, so it is not for printing.
        endpoint: what it is called in errors.
    """

    url: URL = field(repr=False)
    endpoint: Endpoint

    @classmethod
    def parse(cls, target: str) -> Broker:
        """Read a URL, or `HOST[:PORT]`, which is the user guest's default virtual host there.

        Raises:
            ValueError: where it is neither, or names a file that can't be read.
        """
        try:
            url = URL(target if "://" in target else f"amqp://{target}/")
            if url.scheme not in _PORTS or not url.host:
                raise ValueError
            endpoint = Endpoint(url.host, url.port or _PORTS[url.scheme], "AMQP")
        except ValueError:
            # What was given is not shown: there may be a password in it.
            raise ValueError(
                "the target is no broker's; it is HOST[:PORT] or amqp[s]://USER:PASSWORD@HOST:PORT/VHOST"
            ) from None
        for name in _FILES:
            if name in url.query and not Path(url.query[name]).is_file():
                raise ValueError(f"{name} {url.query[name]} is no file")
        return cls(url, endpoint)

    async def connect(self, name: str, *, timeout_s: float) -> AbstractConnection:
        """Open a connection, which the broker's tools show under `name`.

        Raises:
            ConnectionFailedError: nobody answers, or not as a broker does.
            RequestRefusedError: the broker doesn't let this user in, or has no such virtual host.
        """
        with self.naming_errors(connecting=True):
            properties: FieldTable = {"connection_name": name}
            connection = aio_pika.Connection(self.url, client_properties=properties)
            try:
                await connection.connect(timeout_s)
            except BaseException:
                await connection.close()  # else the garbage collector tries to, in whatever thread it runs
                raise
            return connection

    @contextmanager
    def naming_errors(self, *, connecting: bool = False) -> Iterator[None]:
        """Name whatever goes wrong with the broker, or with connecting to it, as ClientError."""
        try:
            yield
        except ERRORS as exc:
            raise (self._connecting_failed(exc) if connecting else self._failed(exc)) from exc

    def _connecting_failed(self, exc: Exception) -> ClientError:
        where = f"the broker {self.endpoint.address}"
        cause = exc.__cause__ if isinstance(exc.__cause__, SSLError) else exc
        if isinstance(cause, SSLCertVerificationError):
            return ConnectionFailedError(f"{where} has no certificate that can be trusted: {cause.verify_message}")
        if isinstance(cause, SSLError):
            return ConnectionFailedError(f"{where} does not agree on TLS: {cause.reason or cause}")
        user = self.url.user or "guest"
        if isinstance(exc, exceptions.ProbableAuthenticationError):
            return RequestRefusedError(
                Code.UNAUTHENTICATED, f'{where} does not let user "{user}" in: wrong name or password'
            )
        if isinstance(exc, (exceptions.InvalidFrameError, PAMQPException)):  # what aiormq makes of a refusal to open
            vhost = self.url.path.removeprefix("/") or "/"
            return RequestRefusedError(
                Code.PERMISSION_DENIED, f'{where} does not let user "{user}" into virtual host "{vhost}"'
            )
        if refused := self._refused(exc):
            return refused
        return ConnectionFailedError(f"cannot connect to {self.endpoint.address} over AMQP; is a broker running there?")

    def _failed(self, exc: Exception) -> ClientError:
        where = f"the broker {self.endpoint.address}"
        if isinstance(exc, exceptions.PublishError):
            return RequestRefusedError(Code.NOT_FOUND, f"{where} has no queue any more that a message could go to")
        if isinstance(exc, exceptions.DeliveryError):
            return RequestRefusedError(Code.UNAVAILABLE, f"{where} takes no more messages now")
        if refused := self._refused(exc):
            return refused
        lost = f"the connection to {where} was lost"
        if isinstance(exc, (exceptions.ChannelClosed, exceptions.ConnectionClosed)) and exc.args:
            return ConnectionFailedError(f"{lost}: {exc.args[-1]}")
        return ConnectionFailedError(lost)

    def _refused(self, exc: Exception) -> RequestRefusedError | None:
        said = str(exc.args[-1]) if exc.args else ""
        code = _CODES.get(re.split(r"\W", said)[0])
        return None if code is None else RequestRefusedError(code, f"the broker {self.endpoint.address} says {said}")
