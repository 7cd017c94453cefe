"""A RabbitMQ broker: its address, connecting to it, and the errors of both. Must not know a model.

The address is a URL in aio-pika's form: `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps://` for TLS, with
`?cafile=…&certfile=…&keyfile=…` for another certificate authority and for a client certificate. No message of this
module contains the password.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import gaierror
from ssl import SSLCertVerificationError, SSLError

import aio_pika
from aio_pika import exceptions
from aio_pika.abc import AbstractConnection
from pamqp.common import FieldTable
from pamqp.exceptions import PAMQPException
from yarl import URL

from savedmodel_bakery.client.servers import Endpoint
from savedmodel_bakery.client.transports import amqp_frames
from savedmodel_bakery.errors import ClientError, ConnectionFailedError, RequestRefusedError
from savedmodel_bakery.wire.status import Code

# aiormq logs connection errors that it also raises; a command line shows them once.
logging.getLogger("aiormq.connection").addHandler(logging.NullHandler())
logging.getLogger("aiormq.connection").propagate = False

_PORTS = {"amqp": 5672, "amqps": 5671}
_FILES = ("cafile", "certfile", "keyfile")
# First word of the broker's reply text when it closes a channel or a connection, or refuses to open one.
_CODES = {
    "ACCESS_REFUSED": Code.PERMISSION_DENIED,
    "NOT_ALLOWED": Code.PERMISSION_DENIED,
    "NOT_FOUND": Code.NOT_FOUND,
    "PRECONDITION_FAILED": Code.FAILED_PRECONDITION,
    "RESOURCE_LOCKED": Code.FAILED_PRECONDITION,
}
BROKER_ERRORS = (
    exceptions.AMQPError,
    exceptions.ChannelInvalidStateError,
    PAMQPException,
    OSError,
    asyncio.TimeoutError,  # a class of its own before Python 3.11
)
"""Everything that aio-pika raises for errors of the broker or the connection."""


@dataclass(frozen=True)
class Broker:
    """A broker and one of its virtual hosts."""

    url: URL = field(repr=False)  # contains user and password; never print it
    endpoint: Endpoint  # host and port, for error messages

    @classmethod
    def parse(cls, target: str) -> Broker:
        """Parse a URL, or `HOST[:PORT]`, which means user guest and the default virtual host; raises ValueError."""
        if not isinstance(target, str):
            raise ValueError(f"invalid broker address: must be one str, not a {type(target).__name__}")
        try:
            url = URL(target if "://" in target else f"amqp://{target}/")
            if url.scheme not in _PORTS or not url.host:
                raise ValueError
            endpoint = Endpoint(url.host, url.port or _PORTS[url.scheme], "AMQP")
        except ValueError:
            # The message does not quote the target, which may contain a password.
            raise ValueError(
                "invalid broker address: must be HOST[:PORT] or amqp[s]://USER:PASSWORD@HOST:PORT/VHOST"
            ) from None
        for name in _FILES:
            if name in url.query and not Path(url.query[name]).is_file():
                raise ValueError(f"{name} not found: {url.query[name]}")
        return cls(url, endpoint)

    async def connect(self, name: str, *, timeout_s: float) -> AbstractConnection:
        """Open a connection that the broker's tools list as `name`; raises ClientError."""
        with self.translate_errors(connecting=True):
            properties: FieldTable = {"connection_name": name}
            connection = aio_pika.Connection(self.url, client_properties=properties)
            connection.kwargs["transport_factory"] = amqp_frames.Transport()
            try:
                await connection.connect(timeout_s)
            except BaseException:
                await connection.close()  # otherwise the garbage collector closes it, in any thread
                raise
            return connection

    @contextmanager
    def translate_errors(self, *, connecting: bool = False) -> Iterator[None]:
        """Raise errors of the broker, or of connecting to it, as ClientError."""
        try:
            yield
        except BROKER_ERRORS as exc:
            raise (self._connecting_failed(exc) if connecting else self._failed(exc)) from exc

    def _connecting_failed(self, exc: Exception) -> ClientError:
        broker = f"the broker {self.endpoint.address}"
        cause = exc.__cause__ if isinstance(exc.__cause__, SSLError) else exc
        if isinstance(cause, SSLCertVerificationError):
            return ConnectionFailedError(f"the certificate of {broker} is not trusted: {cause.verify_message}")
        if isinstance(cause, SSLError):
            return ConnectionFailedError(f"the TLS handshake with {broker} failed: {cause.reason or cause}")
        user = self.url.user or "guest"
        if isinstance(exc, exceptions.ProbableAuthenticationError):
            return RequestRefusedError(
                Code.UNAUTHENTICATED, f'{broker} rejects user "{user}": wrong user name or password'
            )
        if isinstance(exc, (exceptions.InvalidFrameError, PAMQPException)):  # aiormq's error for a refused Open
            vhost = self.url.path.removeprefix("/") or "/"
            return RequestRefusedError(
                Code.PERMISSION_DENIED, f'{broker} denies user "{user}" access to virtual host "{vhost}"'
            )
        if refusal := self._refusal(exc):
            return refusal
        address = f"{self.endpoint.address} over AMQP"
        if isinstance(exc.__cause__, gaierror):
            return ConnectionFailedError(f"cannot connect to {address}: the host name does not resolve")
        return ConnectionFailedError(f"cannot connect to {address}; is a broker running there?")

    def _failed(self, exc: Exception) -> ClientError:
        broker = f"the broker {self.endpoint.address}"
        if isinstance(exc, exceptions.PublishError):
            return RequestRefusedError(Code.NOT_FOUND, f"the queue does not exist on {broker}")
        if isinstance(exc, exceptions.DeliveryError):
            return RequestRefusedError(Code.UNAVAILABLE, f"the queue on {broker} is full")
        if refusal := self._refusal(exc):
            return refusal
        lost = f"the connection to {broker} was lost"
        if isinstance(exc, (exceptions.ChannelClosed, exceptions.ConnectionClosed)) and exc.args:
            return ConnectionFailedError(f"{lost}: {exc.args[-1]}")
        return ConnectionFailedError(lost)

    def _refusal(self, exc: Exception) -> RequestRefusedError | None:
        reply_text = str(exc.args[-1]) if exc.args else ""
        code = _CODES.get(re.split(r"\W", reply_text)[0])
        if code is None:
            return None
        return RequestRefusedError(code, f"the broker {self.endpoint.address} replied: {reply_text}")
