"""The sentence for each text of gRPC, ssl and urllib3; test_tls.py has those that a test can cause reliably."""

from __future__ import annotations

import pytest

from savedmodel_bakery.client import Tls
from savedmodel_bakery.client.servers import parse_server
from savedmodel_bakery.client.transports.connection_errors import connecting_failed

WITHOUT = "cannot connect to a:8501 over REST"
WITH = f"{WITHOUT} with TLS"


@pytest.mark.parametrize(
    ("detail", "sentence"),
    [
        ("EOF occurred in violation of protocol (_ssl.c:2427)", f"{WITH}: the connection was closed; does the server"),
        ("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred", f"{WITH}: the connection was closed; does the server"),
        ("[Errno 104] Connection reset by peer", f"{WITH}: the connection was closed; does the server"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13", f"{WITH}: the server requires a client certificate"),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert", f"{WITH}: the server rejects the client's certificate"),
        ("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3", f"{WITH}: the server rejects the client's certificate"),
        ("[SSL] record layer failure (_ssl.c:1000)", f"{WITH}: the server does not use TLS on this port"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)",
            f"{WITH}: the server's certificate is not trusted: self-signed certificate",
        ),
        (
            "certificate verify failed: Hostname mismatch, certificate is not valid for 'a'. (_ssl.c:1006)",
            f"{WITH}: the server's certificate is not valid for a",
        ),
        ("[SSL: NO_CIPHERS_AVAILABLE] no ciphers", f"{WITH}: the handshake failed: [SSL: NO_CIPHERS_AVAILABLE] no"),
        ("[Errno 111] Connection refused", f"{WITHOUT}; is a model server running there?"),
    ],
)
def test_with_tls(detail: str, sentence: str) -> None:
    error = connecting_failed(parse_server("a", transport="rest", tls=Tls()), detail)
    assert str(error).startswith(sentence)


@pytest.mark.parametrize(
    ("detail", "sentence"),
    [
        ("RemoteDisconnected('Remote end closed connection')", ": the connection was closed; if the server requires"),
        ("[Errno 111] Connection refused", "; is a model server running there?"),
    ],
)
def test_without_tls(detail: str, sentence: str) -> None:
    error = connecting_failed(parse_server("a", transport="rest"), detail)
    assert str(error).startswith(f"{WITHOUT}{sentence}")
