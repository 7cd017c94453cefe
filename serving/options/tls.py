"""TLS settings of the gRPC and REST ports, read from text SSLConfig files. Does not import gRPC."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass, field
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

    key: str = field(repr=False)
    certificate: str
    client_authority: str
    verify_clients: bool


def read_tls(path: Path) -> Tls:
    """Read a text SSLConfig file.

    Raises:
        StatusError: the file can't be read or parsed, or it requires client certificates without naming an authority.
    """
    message = read_message(path, schema.SSLConfig, has_secrets=True)
    if message.client_verify and not message.custom_ca:
        raise invalid_argument(f"{path}: client_verify needs custom_ca, the authority that signs clients' certificates")
    missing = [name for name in ("server_key", "server_cert") if not getattr(message, name)]
    if missing:
        raise invalid_argument(f"{path}: {' and '.join(missing)} missing, in PEM format")
    return Tls(message.server_key, message.server_cert, message.custom_ca, message.client_verify)


def read_ssl_context(path: Path) -> ssl.SSLContext:
    """Read a text SSLConfig file as the context of an HTTP server, for TLS 1.2 and later.

    Raises:
        StatusError: as `read_tls`, and if the key or a certificate is not valid PEM or they do not belong together.
    """
    tls = read_tls(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        _load_key(context, tls)
        if tls.verify_clients:
            context.load_verify_locations(cadata=tls.client_authority)
            context.verify_mode = ssl.CERT_REQUIRED
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not valid PEM"
        raise invalid_argument(f"{path}: cannot use the key or a certificate: {reason}") from error
    return context


def _load_key(context: ssl.SSLContext, tls: Tls) -> None:
    """Load the server's key and certificate, which `ssl` can only read from a file."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # readable by this user only
        file.write(f"{tls.key}\n{tls.certificate}\n")
        file.flush()
        context.load_cert_chain(file.name, password="")  # an encrypted key is an error; do not prompt for its password
