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
        "--port=8500", "--rest_api_port=8501", "--model_name=efficientnet_lite0",
        f"--model_base_path={models / MODEL}", "--grpc_max_threads=256",
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
        "--port=9500", "--rest_api_port=0", f"--model_name={MODEL}", f"--model_base_path={models / MODEL}",
        "--grpc_max_threads=33", "--enable_batching=true", "--port=7", "--model_config_file=a b",
    ] == arguments  # fmt: skip
    assert last.endswith("with glibc.malloc.hugetlb=0")


@pytest.mark.parametrize("ending", ["", "/"])
def test_the_base_path_may_be_the_parent_folder_of_the_model(
    clone: Path, tmp_path: Path, models: Path, ending: str
) -> None:
    """As in TensorFlow Serving's own image, where MODEL_BASE_PATH is /models."""
    arguments = start(clone, tmp_path, MODEL_NAME=MODEL, MODEL_BASE_PATH=f"{models}{ending}")
    assert f"--model_base_path={models / MODEL}" in arguments


def test_the_health_check_escapes_the_model_name_in_the_url(clone: Path) -> None:
    """The server here is a bare socket."""
    name = "it's a café? 100%"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        environment = {"PATH": os.environ["PATH"], "MODEL_NAME": name, "REST_API_PORT": str(listener.getsockname()[1])}
        check = subprocess.Popen([clone / "healthcheck.sh"], env=environment, stdout=subprocess.PIPE)
        connection, _ = listener.accept()
        with connection:
            request = b""
            while not request.endswith(b"\r\n\r\n"):  # bash writes it in pieces, and fails if the socket closes early
                request += connection.recv(4096)
            connection.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"state": "AVAILABLE"}')
        assert (b"", None) == check.communicate(timeout=10)
    assert 0 == check.returncode
    method, path, _ = request.decode().splitlines()[0].split(" ")
    assert ("GET", f"/v1/models/{name}") == (method, unquote(path))
