"""Certificates for tests, and the files and servers that use them."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import grpc
import trustme

HOSTS = ("localhost", "127.0.0.1")


class TlsFiles:
    """A certificate authority that signs the certificates of servers and clients, and its files.

    Attributes:
        ca: file of the authority.
        other_ca: file of another authority.
        cert, key: files of a client's certificate.
        cert_with_key: file with both.
        other_key: file of another private key.
    """

    def __init__(self, folder: Path) -> None:
        self._authority, other = trustme.CA(), trustme.CA()
        client = self._authority.issue_cert("client")
        contents = {
            "ca": self._authority.cert_pem,
            "other_ca": other.cert_pem,
            "cert": client.cert_chain_pems[0],
            "key": client.private_key_pem,
            "cert_with_key": client.private_key_and_cert_chain_pem,
            "other_key": other.issue_cert("client").private_key_pem,
        }
        for name, content in contents.items():
            content.write_to_path(str(folder / f"{name}.pem"))
        self.ca, self.other_ca, self.cert, self.key, self.cert_with_key, self.other_key = (
            folder / f"{name}.pem" for name in contents
        )
        long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
        self._servers = {
            "valid": self._authority.issue_cert(*HOSTS),
            "for another name": self._authority.issue_cert("elsewhere.example"),
            "expired": self._authority.issue_cert(
                *HOSTS, not_before=long_ago, not_after=long_ago + datetime.timedelta(days=1)
            ),
        }

    def grpc_credentials(self, certificate: str, *, require_client: bool = False) -> grpc.ServerCredentials:
        """Return the credentials of a gRPC server that has a certificate of this kind."""
        issued = self._servers[certificate]
        pair = (issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())
        return grpc.ssl_server_credentials(
            [pair], self._authority.cert_pem.bytes() if require_client else None, require_client
        )

    def ssl_context(self, certificate: str, *, require_client: bool = False) -> ssl.SSLContext:
        """Return the same for an HTTP server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._servers[certificate].configure_cert(context)
        if require_client:
            self._authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
