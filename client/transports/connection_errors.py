"""Explains why a model server cannot be reached, from what gRPC and OpenSSL say. Must not import gRPC or HTTP."""

from __future__ import annotations

import re
from collections.abc import Sequence

from savedmodel_bakery.client.servers import Endpoint, Server
from savedmodel_bakery.errors import ConnectionFailedError, DeadlineExceededError, TlsHandshakeError

# The spellings of gRPC's BoringSSL, of OpenSSL, and of gRPC itself.
_OTHER_NAME = re.compile(r"Hostname Verification Check|Hostname mismatch|IP address mismatch")
_NOT_TRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED\W+(?:certificate verify failed: )?(?P<reason>[^:(]+)")
_NO_TLS = re.compile(
    r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|record layer failure|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST"
)
_CERTIFICATE_REQUIRED = re.compile(r"ALERT_CERTIFICATE_REQUIRED")
_CERTIFICATE_REJECTED = re.compile(r"ALERT_(?:UNKNOWN_CA|BAD_CERTIFICATE|CERTIFICATE_\w+|DECRYPT_ERROR)")
_CLOSED = re.compile(r"(?i)socket closed|connection reset|RemoteDisconnected|broken pipe|FD shutdown|EOF")
_HANDSHAKE = re.compile(r"handshake failed|SSL")


def connecting_failed(server: Server, detail: str) -> ConnectionFailedError:
    """Return the error for a connection that could not be made; `detail` is the text of the library's error."""
    where = _describe(server.endpoints)
    if server.tls is not None:
        reason = _handshake_error(detail, server.endpoints[0].host)
        if reason is not None:
            return TlsHandshakeError(f"cannot connect to {where} with TLS: {reason}")
    if not _CLOSED.search(detail):
        return ConnectionFailedError(f"cannot connect to {where}; is a model server running there?")
    if server.tls is not None:
        return ConnectionFailedError(
            f"cannot connect to {where} with TLS: the connection was closed; does the server require a certificate?"
        )
    scheme = "grpcs" if server.uses_grpc else "https"
    return ConnectionFailedError(
        f"cannot connect to {where}: the connection was closed; if the server requires TLS, use {scheme}://"
    )


def name_not_resolved(endpoints: Sequence[Endpoint]) -> ConnectionFailedError:
    """Return the error for a host name that has no address."""
    return ConnectionFailedError(f"cannot connect to {_describe(endpoints)}: the host name does not resolve")


def deadline_exceeded(endpoints: Sequence[Endpoint], timeout_s: float) -> DeadlineExceededError:
    """Return the error for a response that did not arrive within this client's timeout."""
    return DeadlineExceededError(f"no response from {_describe(endpoints)} within {timeout_s:g} s")


def _handshake_error(detail: str, host: str) -> str | None:
    """Return why a TLS handshake failed; None if the text is not about one."""
    if _OTHER_NAME.search(detail):
        return f"the server's certificate is not valid for {host}"
    if match := _NOT_TRUSTED.search(detail):
        return f"the server's certificate is not trusted: {match['reason'].strip()}"
    if _NO_TLS.search(detail):
        return "the server does not use TLS on this port"
    if _CERTIFICATE_REQUIRED.search(detail):
        return "the server requires a client certificate"
    if _CERTIFICATE_REJECTED.search(detail):
        return "the server rejects the client's certificate"
    if _HANDSHAKE.search(detail) and not _CLOSED.search(detail):
        return f"the handshake failed: {detail}"
    return None


def _describe(endpoints: Sequence[Endpoint]) -> str:
    return f"{', '.join(endpoint.address for endpoint in endpoints)} over {endpoints[0].protocol}"
