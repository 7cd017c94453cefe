"""`entrypoint.sh` configures the server from the environment. A stub server prints its arguments."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest
from waiting import wait_until

MODEL = 'it\'s a "model" $HOME'


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with one model, whose name has the characters that are special to a shell."""
    version = tmp_path / "all models" / MODEL / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    return version.parents[1]


def start(clone: Path, tmp_path: Path, *arguments: str, **environment: str) -> list[str]:
    """Return the stub's output, one line per argument and a last line; it must exit with 0 after SIGTERM."""
    (tmp_path / "bin").mkdir()
    shutil.copy(clone / "tests" / "support" / "stub_model_server", tmp_path / "bin" / "tensorflow_model_server")
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [clone / "entrypoint.sh", *arguments],
            env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", **environment}, stdout=output, stderr=output,
        )  # fmt: skip
    wait_until(lambda: "as user" in log.read_text() or process.poll() is not None)
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
        pytest.param(b"", (0, ""), id="TLS, closed"),
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x46", (0, ""), id="TLS, with an alert"),
    ],
)
def test_the_health_check_of_the_embedded_server(clone: Path, response: bytes, expected: tuple[int, str]) -> None:
    """With TLS, it only checks that the port accepts connections."""
    assert (*expected, "/v2/health/ready") == check_health(clone, response, "/usr/bin:/bin")


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
