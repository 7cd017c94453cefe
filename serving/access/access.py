"""Decides who is calling, and whether the caller may make this call."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from pathlib import Path

from savedmodel_bakery.serving.access.identity import Identity
from savedmodel_bakery.serving.access.tokens import Role, hash_secret
from savedmodel_bakery.serving.access.tokens_file import TokensFile
from savedmodel_bakery.wire.status import Code, StatusError

ANYONE = Identity()
"""A caller who needs no token."""


class Access:
    """The rules of a server.

    Without a tokens file, everybody may predict and read metrics, and callers on this machine may do everything.

    Args:
        tokens_file: lists the tokens; None if callers need none.

    Raises:
        OSError: the file can't be read.
        TokensError: the file is invalid; the message names it.
    """

    def __init__(self, tokens_file: Path | None = None) -> None:
        self._file = TokensFile(tokens_file) if tokens_file else None

    @property
    def needs_token(self) -> bool:
        """Whether callers need a token."""
        return self._file is not None

    def authorize(self, credentials: str | None, *, is_local: bool, role: Role | None) -> Identity:
        """Return the caller of a request and count the request.

        Args:
            credentials: the value of the header or metadata `authorization`; None without one.
            is_local: whether the request came over the loopback interface or a Unix socket.
            role: the role that the request needs; None if any valid token is enough.

        Raises:
            StatusError: UNAUTHENTICATED without a valid token, PERMISSION_DENIED if the caller lacks the role, or
                RESOURCE_EXHAUSTED if the caller has sent its requests of this second.
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
