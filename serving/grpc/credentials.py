"""TLS: what a text SSLConfig says, for gRPC's ports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from savedmodel_bakery.serving.options import text_format as text_files
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import invalid_argument


@dataclass(frozen=True)
class Tls:
    """PEM texts.

    Attributes:
        key: of the server.
        certificate: of the server, with the chain up to its authority.
        client_authority: certificates that sign clients' ones.
        verify_clients: whether a client must have such a certificate.
    """

    key: str
    certificate: str
    client_authority: str
    verify_clients: bool

    def credentials(self) -> Any:
        """What gRPC needs to open a port; texts that are no PEM show only there."""
        return grpc.ssl_server_credentials(
            [(self.key.encode(), self.certificate.encode())],
            root_certificates=self.client_authority.encode() or None,
            require_client_auth=self.verify_clients,
        )


def read_tls(path: Path) -> Tls:
    """Read a text SSLConfig.

    Raises:
        StatusError: it is missing, no text protobuf, or wants to verify clients without an authority.
    """
    message = text_files.read(path, schema.SSLConfig)
    if message.client_verify and not message.custom_ca:
        raise invalid_argument(f"{path}: client_verify needs custom_ca, the authority that signs clients' certificates")
    return Tls(message.server_key, message.server_cert, message.custom_ca, message.client_verify)
