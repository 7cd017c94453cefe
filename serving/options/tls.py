"""TLS settings of the gRPC port, read from a text SSLConfig. Does not import gRPC."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from savedmodel_bakery.serving.options.text_format import read_message
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import invalid_argument


@dataclass(frozen=True)
class Tls:
    """Keys and certificates, in PEM format; their content is not validated here.

    Attributes:
        key: the server's private key.
        certificate: the server's certificate, followed by the chain up to its authority.
        client_authority: certificates of the authorities that sign client certificates; may be empty.
        verify_clients: whether clients must present a certificate.
    """

    key: str
    certificate: str
    client_authority: str
    verify_clients: bool


def read_tls(path: Path) -> Tls:
    """Read a text SSLConfig file.

    Raises:
        StatusError: the file can't be read or parsed, or it requires client certificates without naming an authority.
    """
    message = read_message(path, schema.SSLConfig)
    if message.client_verify and not message.custom_ca:
        raise invalid_argument(f"{path}: client_verify needs custom_ca, the authority that signs clients' certificates")
    return Tls(message.server_key, message.server_cert, message.custom_ca, message.client_verify)
