"""Decides who is calling, which role each RPC and REST path needs, and whether the caller may make this call.

An `Identity` is the caller of a request: which models it may use, and how much.
"""

from __future__ import annotations

import hmac
import logging
import stat
import threading
import time
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from urllib.parse import unquote

from savedmodel_bakery.serving.access.tokens import Role, Token, TokensError, hash_secret, parse_tokens
from savedmodel_bakery.serving.telemetry.metrics import TOKEN_CALLS
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.v2.schema import METHODS as V2_METHODS

logger = logging.getLogger(__name__)

_CHECK_INTERVAL_S = 1.0  # of the tokens file
PROFILER = "/tensorflow.ProfilerService/"
"""Before the name of an RPC of TensorFlow's profiler."""

# RPCs of the v2 protocol that name a model; any valid token is enough for the others, most of which are unimplemented.
_NEED_PREDICT = ("ModelReady", "ModelMetadata", "ModelConfig", "ModelInfer", "RepositoryIndex")
RPC_ROLES: dict[str, Role | None] = {
    METHODS["Predict"].path: Role.PREDICT,
    METHODS["Classify"].path: Role.PREDICT,
    METHODS["Regress"].path: Role.PREDICT,
    METHODS["MultiInference"].path: Role.PREDICT,
    METHODS["GetModelMetadata"].path: Role.PREDICT,
    METHODS["GetModelStatus"].path: Role.PREDICT,
    METHODS["HandleReloadConfigRequest"].path: Role.ADMIN,
    PROFILER + "Profile": Role.ADMIN,
    PROFILER + "Terminate": Role.ADMIN,
    **{method.path: Role.PREDICT if name in _NEED_PREDICT else None for name, method in V2_METHODS.items()},
}
"""By path. The health service, and ServerLive and ServerReady of the v2 protocol, need no token; a call of any other
path needs a valid token, whatever its roles."""

LIVE_PATH, READY_PATH = "/v2/health/live", "/v2/health/ready"
PUBLIC_PATHS = (LIVE_PATH, READY_PATH)
"""REST paths that need no token."""
PHOTOS = "/photos/"
"""Before the name of a model that runs on photos."""


class RateLimit:
    """A token bucket of one second: permits `per_second` units per second on average. Safe to use from several threads.

    A take of more units than the bucket contains when it is full is permitted once the bucket is full. The bucket is
    then in debt, and later takes wait until the debt is paid. So no request is too large, and the average still holds.
    Below 1 unit per second, the bucket contains one unit.
    """

    def __init__(self, per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_second = per_second
        self._capacity = max(per_second, 1.0)
        self._clock = clock
        self._lock = threading.Lock()
        self._level = self._capacity
        self._filled_at = clock()

    def take(self, units: float) -> float:
        """Take units and return 0, or take none and return the seconds until they can be taken."""
        with self._lock:
            now = self._clock()
            self._level = min(self._capacity, self._level + (now - self._filled_at) * self.per_second)
            self._filled_at = now
            missing = min(units, self._capacity) - self._level
            if missing > 0:
                return missing / self.per_second
            self._level -= units
            return 0.0


class Identity:
    """A caller; without a token, one that needs none and may use all models."""

    def __init__(self, token: Token | None = None) -> None:
        self.token = token
        self._calls = TOKEN_CALLS.labels(token.name) if token else None
        self._requests = _rate_limit(token.requests_per_second if token else None)
        self._rows = _rate_limit(token.rows_per_second if token else None)

    def __repr__(self) -> str:
        return f"Identity({self.token.name if self.token else ''!r})"

    def covers(self, name: str) -> bool:
        """Return whether the caller may use a model."""
        return not self.token or self.token.models is None or name in self.token.models

    def check_model(self, name: str) -> None:
        """Check that the caller may use a model. Call this before looking the model up: it may not exist."""
        if self.token and not self.covers(name):
            raise StatusError(
                Code.PERMISSION_DENIED, f'the token "{self.token.name}" does not cover the model "{name}"'
            )

    def take_request(self) -> None:
        """Count a request; RESOURCE_EXHAUSTED if the caller has sent its requests of this second."""
        if self._calls:
            self._calls.inc()
        if self._requests:
            self._take(self._requests, 1, "requests")

    def take(self, rows: int) -> None:
        """Count the rows of a request, before they are processed; RESOURCE_EXHAUSTED if they are too many now."""
        if self._rows:
            self._take(self._rows, rows, "rows")

    def _take(self, limit: RateLimit, units: int, unit: str) -> None:
        assert self.token
        retry_after_s = limit.take(units)
        if retry_after_s:
            raise StatusError(
                Code.RESOURCE_EXHAUSTED,
                f'the token "{self.token.name}" permits {limit.per_second:g} {unit} per second ({unit}_per_second in '
                "the tokens file)",
                retry_after_s=retry_after_s,
                limit=f"{unit}_per_second",
            )


def _rate_limit(per_second: float | None) -> RateLimit | None:
    return RateLimit(per_second) if per_second else None


class TokensFile:
    """The callers that a tokens file lists.

    A change of the file takes effect within a second, at the next call. If the file is then missing or invalid, the
    callers stay as they were and one line is logged. At first, OSError or TokensError is raised.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._checking = threading.Lock()
        self._checked_at = clock()
        self._content: bytes | None = None
        self._problem = ""
        self._identities: tuple[Identity, ...] = ()
        self._read()

    def identities(self) -> tuple[Identity, ...]:
        """Return one identity per token. An entry that stays as it was keeps its identity, and so its rate limits."""
        if self._clock() - self._checked_at >= _CHECK_INTERVAL_S and self._checking.acquire(blocking=False):
            try:
                self._reread()
            finally:
                self._checked_at = self._clock()
                self._checking.release()
        return self._identities

    def _reread(self) -> None:
        """Read the file again; log a problem once."""
        before, problem = self._content, ""
        try:
            self._read()
            if self._content != before:
                logger.info("Read %d tokens from %s", len(self._identities), self._path)
        except OSError as error:
            problem = f"Cannot read {self._path} ({error.strerror})"
        except TokensError as error:
            problem = str(error)
        if problem and problem != self._problem:
            logger.error("%s; its last tokens stay valid", problem)
        self._problem = problem

    def _read(self) -> None:
        if not stat.S_ISREG(self._path.stat().st_mode):  # reading a pipe might block for ever
            raise TokensError(f"{self._path}: not a regular file")
        content = self._path.read_bytes()
        if content == self._content:
            return
        try:
            tokens = parse_tokens(content.decode())
        except UnicodeDecodeError:
            raise TokensError(f"{self._path}: not valid UTF-8") from None
        except TokensError as error:
            raise TokensError(f"{self._path}: {error}") from None
        known = {identity.token: identity for identity in self._identities}
        self._identities = tuple(known.get(token) or Identity(token) for token in tokens)
        self._content = content
        if not tokens:
            logger.warning("%s lists no tokens: only health is answered", self._path)


ANYONE = Identity()
"""A caller who needs no token."""


class Access:
    """The rules of a server.

    Without a tokens file, everybody may predict and read metrics, and callers on this machine may do everything.
    """

    def __init__(self, tokens_file: Path | None = None) -> None:
        self._file = TokensFile(tokens_file) if tokens_file else None

    @property
    def needs_token(self) -> bool:
        """Whether callers need a token."""
        return self._file is not None

    def authorize(self, credentials: str | None, *, is_local: bool, role: Role | None) -> Identity:
        """Return the caller of a request and count the request.

        `credentials` is the value of the header or metadata `authorization`. `is_local`: the request came over the
        loopback interface or a Unix socket. `role` is None if any valid token is enough.
        """
        if self._file is None:
            if role is Role.ADMIN and not is_local:
                raise StatusError(
                    Code.PERMISSION_DENIED,
                    "this call is permitted only from the server's own machine; set --auth_tokens_file to permit it to "
                    "callers with an admin token",
                )
            return ANYONE
        identity = _identify(credentials, self._file.identities())
        if role and identity.token and role not in identity.token.roles:
            raise StatusError(
                Code.PERMISSION_DENIED, f'the token "{identity.token.name}" does not have the role "{role.value}"'
            )
        identity.take_request()
        return identity


def _identify(credentials: str | None, identities: Iterable[Identity]) -> Identity:
    if credentials is None:
        raise StatusError(Code.UNAUTHENTICATED, "a token is required: Authorization: Bearer TOKEN")
    scheme, _, secret = credentials.strip().partition(" ")
    if scheme.lower() != "bearer":  # RFC 9110, 11.1: schemes are case-insensitive
        raise StatusError(Code.UNAUTHENTICATED, "unknown credentials: must be Authorization: Bearer TOKEN")
    sha256 = hash_secret(secret.strip())
    # Compares all entries in constant time, so that the duration says nothing about them.
    matches = [
        identity for identity in identities if identity.token and hmac.compare_digest(identity.token.sha256, sha256)
    ]
    if not matches:
        raise StatusError(Code.UNAUTHENTICATED, "the token is not valid")
    return matches[0]


def is_loopback(host: str) -> bool:
    """Return whether a host name or IP address is this machine's loopback interface."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:  # an IPv4 caller of a port that listens on `::`
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def is_local_peer(peer: str) -> bool:
    """Return whether a peer, as gRPC names it, called over the loopback interface or a Unix socket.

    It is such as `ipv4:127.0.0.1:40000`, `ipv6:%5B::1%5D:40000` or `unix:` (gRPC's "Name Resolution" document).
    """
    scheme, _, address = peer.partition(":")
    if scheme == "unix":
        return True
    return scheme in ("ipv4", "ipv6") and is_loopback(unquote(address).rpartition(":")[0].strip("[]"))


def rest_role(path: str, *, metrics_path: str | None, predict_path: str | None = None) -> Role | None:
    """Return the role that a REST path, as sent, needs, whatever the method; None if any valid token is enough."""
    if path == metrics_path:
        return Role.METRICS
    is_model = path.lower().startswith("/v1/") or path.startswith(("/v2/models/", "/v2/repository/index", PHOTOS))
    return Role.PREDICT if is_model or path == predict_path else None
