"""deploy/envoy.yaml is valid, and Envoy protects a model server with it.

The embedded server takes the place of tensorflow_model_server.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import requests
import trustme
from server_process import ServerProcess, free_port
from waiting import wait_until

from savedmodel_bakery.wire.schema import METHODS

ENVOY = Path(sys.executable).with_name("envoy")
MODEL = "half_plus_two"
TOKEN = "CHANGE-ME"
MAX_REQUEST_BYTES = 32 * 2**20


class Proxy:
    """Envoy with the example, in front of a server.

    Args:
        clone: the repository.
        server: the server.
        folder: an empty folder for certificates and log.
    """

    def __init__(self, clone: Path, server: ServerProcess, folder: Path) -> None:
        self.port = free_port()
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost")
        certificate.private_key_pem.write_to_path(folder / "server.key")
        certificate.cert_chain_pems[0].write_to_path(folder / "server.pem")
        self.authority = folder / "ca.pem"
        authority.cert_pem.write_to_path(self.authority)
        text = (clone / "deploy" / "envoy.yaml").read_text()
        for value, replacement in {
            "0.0.0.0": "127.0.0.1",
            "port_value: 8443": f"port_value: {self.port}",
            "port_value: 8500": f"port_value: {server.port}",
            "port_value: 8501": f"port_value: {server.rest_api_port}",
            "/etc/envoy": str(folder),
            "/v1/models/flowers": f"/v1/models/{MODEL}",
        }.items():
            assert value in text
            text = text.replace(value, replacement)
        self.config, self.log = folder / "envoy.yaml", folder / "log"
        self.config.write_text(text)

    def command(self, *options: str) -> list[str]:
        """Return the command line of Envoy with the example."""
        return [str(ENVOY), "--config-path", str(self.config), "--log-level", "warning", *options]

    def rest(self, method: str, path: str, *, token: str | None = TOKEN, **options: object) -> requests.Response:
        """Send an HTTP request through Envoy."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"https://localhost:{self.port}{path}"
        return requests.request(method, url, headers=headers, verify=str(self.authority), timeout=30, **options)

    def rpc(self, name: str, *, token: str | None = TOKEN) -> str:
        """Call a method through Envoy with an empty model name, and return the status code."""
        credentials = grpc.ssl_channel_credentials(self.authority.read_bytes())
        metadata = [("authorization", f"Bearer {token}")] if token else []
        with grpc.secure_channel(f"localhost:{self.port}", credentials) as channel:
            try:
                channel.unary_unary(METHODS[name].path)(b"", metadata=metadata, timeout=30)
            except grpc.RpcError as error:
                return error.code().name
        return "OK"

    def is_healthy(self) -> bool:
        """Return whether Envoy and the server behind it are healthy."""
        try:
            return self.rest("GET", "/healthz", token=None).status_code == 200
        except requests.ConnectionError:
            return False


@pytest.fixture(scope="module")
def proxy(clone: Path, server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    proxy = Proxy(clone, server, tmp_path_factory.mktemp("envoy"))
    with proxy.log.open("w") as log:
        process = subprocess.Popen(proxy.command("--concurrency", "1"), stdout=log, stderr=log)
    try:
        wait_until(proxy.is_healthy, describe=proxy.log.read_text)
        yield proxy
    finally:
        process.terminate()
        process.wait(30)


def test_the_example_is_valid_and_uses_stable_features_only(proxy: Proxy) -> None:
    result = subprocess.run(proxy.command("--mode", "validate"), capture_output=True, text=True, timeout=60)
    assert (0, "") == (result.returncode, result.stderr)


@pytest.mark.parametrize(
    ("token", "statuses"),
    [(None, (403, 403, "PERMISSION_DENIED")), ("wrong", (403, 403, "PERMISSION_DENIED")), (TOKEN, (200, 404, "OK"))],
    ids=["no token", "wrong token", "token"],
)
def test_only_callers_with_a_token_reach_the_server(proxy: Proxy, token: str | None, statuses: object) -> None:
    predicted = proxy.rest("POST", f"/v1/models/{MODEL}:predict", json={"instances": [1.0]}, token=token)
    unknown = proxy.rest("GET", "/v1/models/missing", token=token)
    code = proxy.rpc("Predict", token=token)
    # The server rejects a message without a model.
    assert statuses == (predicted.status_code, unknown.status_code, "OK" if code == "INVALID_ARGUMENT" else code)


def test_a_token_does_not_permit_to_replace_models(proxy: Proxy) -> None:
    assert "INVALID_ARGUMENT" == proxy.rpc("GetModelStatus")
    assert "UNIMPLEMENTED" == proxy.rpc("HandleReloadConfigRequest")
    assert 404 == proxy.rest("GET", "/monitoring/prometheus/metrics").status_code


def test_a_request_that_is_too_large_is_rejected(proxy: Proxy) -> None:
    body = b" " * (MAX_REQUEST_BYTES + 1)
    assert 413 == proxy.rest("POST", f"/v1/models/{MODEL}:predict", data=body).status_code
