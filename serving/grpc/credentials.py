"""gRPC's credentials for a port with TLS."""

from __future__ import annotations

import grpc

from savedmodel_bakery.serving.options.tls import Tls


def server_credentials(tls: Tls) -> grpc.ServerCredentials:
    """Return gRPC credentials; gRPC reports invalid PEM only when it opens the port."""
    return grpc.ssl_server_credentials(
        [(tls.key.encode(), tls.certificate.encode())],
        root_certificates=tls.client_authority.encode() or None,
        require_client_auth=tls.verify_clients,
    )
