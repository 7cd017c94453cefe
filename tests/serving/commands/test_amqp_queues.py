"""A worker calls its model server with TLS and a token."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from canned_server import Peer
from tls_files import TlsFiles

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.amqp.backends import RemoteServer
from savedmodel_bakery.serving.commands.amqp_queues import describe_server
from savedmodel_bakery.wire import schema

TOKEN = "correct-horse-battery-staple"


def test_calls_are_encrypted_and_have_the_token(tmp_path: Path) -> None:
    files, peer = TlsFiles(tmp_path), Peer()
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    request = schema.GetModelStatusRequest()
    request.model_spec.name = "half_plus_two"
    with peer.serve_grpc(credentials=files.grpc_credentials("valid", require_client=True)) as port:
        server = describe_server(
            f"grpcs://localhost:{port}",
            tls=False,
            ca=str(files.ca),
            cert=str(files.cert),
            key=str(files.key),
            token_file=str(token_file),
        )
        assert server is not None
        remote = RemoteServer(server)
        content = remote.call("GetModelStatus", request.SerializeToString(), RequestContext(timeout_s=30))
        remote.close()
    assert [f"Bearer {TOKEN}"] == peer.authorizations
    assert 3 == schema.GetModelStatusResponse.FromString(content).model_version_status[0].version


def test_a_token_without_encryption_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BAKERY_CLIENT_TOKEN", TOKEN)
    with caplog.at_level(logging.WARNING):
        for target in ("127.0.0.1", "models.example"):
            describe_server(target, tls=False, ca=None, cert=None, key=None, token_file=None)
    assert ["models.example:8500 is sent the token without encryption: use --tls"] == caplog.messages
