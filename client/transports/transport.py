"""What every transport is: one connection that questions are put over, and the words for failing at it.

Must not know gRPC, HTTP, or how a tensor is spelled: that is for the siblings `grpc_transport` and
`rest_transport`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Protocol

from savedmodel_bakery.client.errors import (
    ConnectionFailedError,
    DeadlineExceededError,
    InvalidResponseError,
    RequestRefusedError,
)
from savedmodel_bakery.wire.status import Code, StatusError

if TYPE_CHECKING:
    from savedmodel_bakery.client.calls import Question

MAX_TIMEOUT_S = 86_400.0  # a day; far beyond it sockets and gRPC overflow

_TARGET = re.compile(r"(?:\[(?P<ipv6>[^\s\[\]/]+)\]|(?P<host>[^\s\[\]/:@?#]+))(?::(?P<port>\d{1,5}))?", re.ASCII)


@dataclass(frozen=True)
class Endpoint:
    """Where a model server listens, and the protocol it is spoken to there (`gRPC`, `REST`)."""

    host: str
    port: int
    protocol: str

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 65535:
            raise ValueError(f"port {self.port} is none; ports are 1 to 65535")

    @classmethod
    def parse(cls, target: str, port: int, protocol: str) -> Endpoint:
        """Read `host` or `host:port`; IPv6 addresses stand in brackets where a port follows.

        Raises:
            ValueError: where `target` is neither.
        """
        if target.count(":") > 1 and "[" not in target:
            target = f"[{target}]"
        match = _TARGET.fullmatch(target)
        if match is None or not _is_name(match["host"] or ""):
            shown = re.sub(r"(?<=//).*@", "…@", target)  # there may be a password in it
            raise ValueError(f'target "{shown}" is no address; it is HOST or HOST:PORT, without http:// and path')
        return cls(match["ipv6"] or match["host"], int(match["port"] or port), protocol)

    @property
    def address(self) -> str:
        """Host and port as both gRPC and URLs spell them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether the address is this machine's own, which no proxy can reach."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False


class Transport(Protocol):
    """A connection that answers questions; all errors it raises are ClientErrors."""

    def ask(self, question: Question) -> Any:
        """Put a question, and wait for what `client.questions` says is its answer."""

    def close(self) -> None:
        """Give the connection back."""


class PreparedTransport(Transport, Protocol):
    """One that can put the same question again and again without writing it again, as load does."""

    def prepare(self, question: Question) -> Callable[[], bytes]:
        """Write a question once; each call of what is returned puts it, and gives the answer as it came."""

    def decode(self, question: Question, content: bytes) -> Any:
        """Read the answer that came to a question; `content` is the answer's from then on."""


def _is_name(host: str) -> bool:
    """Whether a host can be looked up: urllib3 fails otherwise, with an error that requests lets through."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


@contextmanager
def encoding_request() -> Iterator[None]:
    """Name what the codecs refuse to send as RequestRefusedError."""
    try:
        yield
    except StatusError as exc:
        raise RequestRefusedError(exc.code, exc.message) from exc
    except UnicodeEncodeError as exc:
        raise RequestRefusedError(Code.INVALID_ARGUMENT, f"a name or text cannot be sent as UTF-8: {exc}") from exc


@contextmanager
def decoding_answer() -> Iterator[None]:
    """Name what the codecs can't read as InvalidResponseError."""
    try:
        yield
    except StatusError as exc:
        raise InvalidResponseError(exc.message) from exc


def read_targets(target: str | Sequence[str], port: int, protocol: str) -> list[Endpoint]:
    """Read one target or several; see `Endpoint.parse`.

    Raises:
        ValueError: where there is none, or one is no address.
    """
    targets = [target] if isinstance(target, str) else list(target)
    if not targets:
        raise ValueError("no target was given; name one or more, as HOST or HOST:PORT")
    return [Endpoint.parse(one, port, protocol) for one in targets]


def check_timeout(timeout_s: float) -> None:
    """Refuse a time that no answer can be waited for.

    Raises:
        ValueError: it is not above 0, or is over a day.
    """
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise ValueError(f"timeout_s {timeout_s:g} was given; it is above 0 and at most {MAX_TIMEOUT_S:g}")


def connection_failed(endpoints: Sequence[Endpoint]) -> ConnectionFailedError:
    """The error for no connection."""
    return ConnectionFailedError(f"cannot connect to {_named(endpoints)}; is a model server running there?")


def deadline_exceeded(endpoints: Sequence[Endpoint], timeout_s: float) -> DeadlineExceededError:
    """The error for no answer within the time that this client gives."""
    return DeadlineExceededError(f"no answer from {_named(endpoints)} within {timeout_s:g} s")


def _named(endpoints: Sequence[Endpoint]) -> str:
    return f"{', '.join(endpoint.address for endpoint in endpoints)} over {endpoints[0].protocol}"
