"""`entrypoint.sh` configures the server from the environment. A stub server prints its arguments."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from tls_files import TlsFiles
from waiting import wait_until

MODEL = 'it\'s a "model" $HOME'


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with one model, whose name has the characters that are special to a shell."""
    version = tmp_path / "all models" / MODEL / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    return version.parents[1]


def start(clone: Path, tmp_path: Path, *arguments: str, is_followed: bool = False, **environment: str) -> list[str]:
    """Return the stub's output, one line per argument and a last line; it must exit with 0 after SIGTERM.

    With `is_followed` it is stopped after the file `watching` appears, in which another program states that it runs.
    """
    (tmp_path / "bin").mkdir()
    shutil.copy(clone / "tests" / "support" / "stub_model_server", tmp_path / "bin" / "tensorflow_model_server")
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [clone / "entrypoint.sh", *arguments],
            env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", **environment}, stdout=output, stderr=output,
        )  # fmt: skip

    def is_ready() -> bool:
        return "as user" in log.read_text() and (not is_followed or (tmp_path / "watching").exists())

    wait_until(lambda: is_ready() or process.poll() is not None)
    if process.poll() is None:
        os.kill(process.pid, signal.SIGTERM)
    assert 0 == process.wait(10), log.read_text()
    return log.read_text().splitlines()


def test_defaults_are_those_of_the_image(clone: Path, tmp_path: Path, models: Path) -> None:
    *arguments, last = start(clone, tmp_path, MODEL_BASE_PATH=str(models / MODEL))
    assert [
        "--grpc_max_threads=256", "--port=8500", "--rest_api_port=8501", "--model_name=efficientnet_lite0",
        f"--model_base_path={models / MODEL}",
    ] == arguments  # fmt: skip
    assert last.endswith("with glibc.malloc.hugetlb=1")


def test_environment_variables_override_defaults_and_arguments_come_last(
    clone: Path, tmp_path: Path, models: Path
) -> None:
    *arguments, last = start(
        clone, tmp_path, "--enable_batching=true", "--port=7", "--model_config_file=a b",
        MODEL_NAME=MODEL, MODEL_BASE_PATH=str(models / MODEL), PORT="9500", REST_API_PORT="0", GRPC_MAX_THREADS="33",
        GLIBC_TUNABLES="glibc.malloc.hugetlb=0",
    )  # fmt: skip
    assert [
        "--grpc_max_threads=33", "--port=9500", "--rest_api_port=0", f"--model_name={MODEL}",
        f"--model_base_path={models / MODEL}", "--enable_batching=true", "--port=7", "--model_config_file=a b",
    ] == arguments  # fmt: skip
    assert last.endswith("with glibc.malloc.hugetlb=0")


@pytest.mark.parametrize("ending", ["", "/"])
def test_the_base_path_may_be_the_parent_folder_of_the_model(
    clone: Path, tmp_path: Path, models: Path, ending: str
) -> None:
    """As in TensorFlow Serving's own image, where MODEL_BASE_PATH is /models."""
    arguments = start(clone, tmp_path, MODEL_NAME=MODEL, MODEL_BASE_PATH=f"{models}{ending}")
    assert f"--model_base_path={models / MODEL}" in arguments


def test_a_bucket_that_the_real_server_cannot_read_is_copied_and_followed(clone: Path, tmp_path: Path) -> None:
    """A stub of bakery makes the copy, and writes to a file when it is told to end."""
    (tmp_path / "tools").mkdir()
    stub = tmp_path / "tools" / "bakery"
    stub.write_text(
        '#!/bin/bash\nmkdir -p "$3/1"; touch "$3/1/saved_model.pb"; echo "$@" >>"$LOG"\n'
        '[[ "$4" == --watch ]] || exit 0\n'
        'trap \'kill $!; echo ended >>"$LOG"; exit 130\' TERM; sleep infinity & touch "$WATCHING"; wait\n'
    )
    stub.chmod(0o755)
    arguments = start(
        clone, tmp_path, MODEL_NAME=MODEL, MODEL_BASE_PATH="s3://bucket/m", MODEL_CACHE_DIR=str(tmp_path / "cache"),
        is_followed=True, WATCHING=str(tmp_path / "watching"), LOG=str(tmp_path / "calls"),
        PATH=f"{tmp_path / 'bin'}:{stub.parent}:{os.environ['PATH']}",
    )  # fmt: skip
    folder = tmp_path / "cache" / MODEL
    assert f"--model_base_path={folder}" in arguments
    pull = f"pull s3://bucket/m {folder}"
    assert [pull, f"{pull} --watch 10", "ended"] == (tmp_path / "calls").read_text().splitlines()


def test_a_bucket_that_nothing_in_the_image_reads_is_an_error(clone: Path, tmp_path: Path) -> None:
    shutil.copy(clone / "tests" / "support" / "stub_model_server", tmp_path / "tensorflow_model_server")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MODEL_BASE_PATH": "s3://bucket/m"}
    ended = subprocess.run([clone / "entrypoint.sh"], env=environment, capture_output=True, text=True, check=False)
    expected = (
        "error: tensorflow_model_server cannot read s3://bucket/m, and bakery, which copies it, is not in this image"
    )
    assert (1, "", f"{expected}\n") == (ended.returncode, ended.stdout, ended.stderr)


class TlsServer(ThreadingHTTPServer):
    """An HTTP server whose connections have TLS. As in the real one, a failed handshake ends the connection only."""

    context: ssl.SSLContext

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """Accept a connection; the handshake follows with the first read."""
        connection, address = super().get_request()
        return self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore what a client without TLS, or without a certificate, causes."""


def check_health(clone: Path, response: bytes, path: str, **environment: str) -> tuple[int, str, str]:
    """Return the health check's exit status, its output and the path it requests from a bare socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        environment |= {"PATH": path, "REST_API_PORT": str(listener.getsockname()[1])}
        check = subprocess.Popen([clone / "healthcheck.sh"], env=environment, stdout=subprocess.PIPE)
        connection, _ = listener.accept()
        with connection:
            request = b""
            while not request.endswith(b"\r\n\r\n"):  # bash writes it in pieces, and fails if the socket closes early
                request += connection.recv(4096)
            connection.sendall(response)
        output, _ = check.communicate(timeout=10)
    method, requested, _ = request.decode().splitlines()[0].split(" ")
    assert "GET" == method
    return check.returncode, output.decode(), requested


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", (0, ""), id="ready"),
        pytest.param(b"HTTP/1.1 503 Service Unavailable", (1, "HTTP/1.1 503 Service Unavailable\n"), id="not ready"),
    ],
)
def test_the_health_check_of_the_embedded_server(clone: Path, response: bytes, expected: tuple[int, str]) -> None:
    assert (*expected, "/v2/health/ready") == check_health(clone, response, "/usr/bin:/bin")


@pytest.mark.parametrize("require_client", [False, True])
@pytest.mark.parametrize("status", [200, 503])
def test_the_health_check_asks_over_tls(clone: Path, tmp_path: Path, status: int, require_client: bool) -> None:
    """It does not verify the certificate. Where clients need one, it is enough that the server says so."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/v2/health/ready" else 404)
            self.end_headers()

    with TlsServer(("127.0.0.1", 0), Health) as server:
        server.context = TlsFiles(tmp_path).ssl_context("for another name", require_client=require_client)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {"PATH": "/usr/bin:/bin", "REST_API_PORT": str(server.server_port)}
        check = subprocess.run([clone / "healthcheck.sh"], env=environment, capture_output=True, text=True, check=False)
        server.shutdown()
    assert (0 if status == 200 or require_client else 1) == check.returncode, check.stdout
    assert ("503" in check.stdout) is (check.returncode == 1)


def test_the_health_check_fails_if_the_port_closes_connections(clone: Path) -> None:
    code, output, _ = check_health(clone, b"", "/usr/bin:/bin")
    assert 1 == code
    assert output


@pytest.mark.parametrize(("state", "status"), [("AVAILABLE", 0), ("END", 1)])
def test_the_health_check_of_the_real_server_escapes_the_model_name_in_the_url(
    clone: Path, tmp_path: Path, state: str, status: int
) -> None:
    name = "it's a café? 100%"
    shutil.copy(clone / "tests" / "support" / "stub_model_server", tmp_path / "tensorflow_model_server")
    response = f'HTTP/1.0 200 OK\r\n\r\n{{"state": "{state}"}}'
    code, output, path = check_health(clone, response.encode(), f"{tmp_path}:/usr/bin:/bin", MODEL_NAME=name)
    assert (status, f"/v1/models/{name}") == (code, unquote(path))
    assert (state in output) is (status == 1)
