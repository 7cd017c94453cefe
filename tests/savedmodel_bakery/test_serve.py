"""`bakery serve`, in a process of its own."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import command_line
import model_makers
import pytest
import requests
from bakery_command import run
from server_process import free_port
from waiting import wait_until

from savedmodel_bakery import Client
from savedmodel_bakery.commands import serve


def test_a_server_whose_output_is_closed_ends_silently(tmp_path: Path) -> None:
    """As in `bakery serve FOLDER | head -1`."""
    model_makers.labelling(tmp_path / "animals")
    read_end, write_end = os.pipe()
    os.close(read_end)
    ports = ("--port", str(free_port()), "--rest-api-port", str(free_port()))
    with os.fdopen(write_end, "w") as output:
        command = [sys.executable, "-m", "savedmodel_bakery", "serve", str(tmp_path / "animals"), *ports]
        ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (1, {"INFO"}) == (ended.returncode, {line.split()[0] for line in ended.stderr.splitlines()})


def test_a_name_is_quoted_in_the_url(capsys: pytest.CaptureFixture[str]) -> None:
    serve._print_urls("a b", 1, 2, playground=False)
    first, _, last = capsys.readouterr().out.splitlines()
    assert "Serving a b. Press Ctrl-C to stop." == first
    assert last.endswith("http://127.0.0.1:2/v1/models/a%20b")


@contextmanager
def serving(*arguments: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    with log.open("w") as errors:
        command = [sys.executable, "-m", "savedmodel_bakery", "serve", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_serve_prints_its_urls_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    model_makers.labelling(tmp_path / "animals")
    port, rest_api_port = free_port(), free_port()
    ports = ("--port", str(port), "--rest-api-port", str(rest_api_port))
    with serving(str(tmp_path / "animals"), *ports, log=tmp_path / "log") as process:
        assert process.stdout
        first, grpc_line, rest_line, page_line = (process.stdout.readline().strip() for _ in range(4))
        assert "Serving animals" in first
        assert f"gRPC  127.0.0.1:{port}" == grpc_line
        assert f"REST  http://127.0.0.1:{rest_api_port}/v1/models/animals" == rest_line
        assert "text/html; charset=utf-8" == requests.get(page_line.split()[1], timeout=30).headers["Content-Type"]
        (status,) = requests.get(rest_line.split()[1], timeout=30).json()["model_version_status"]
        assert ("1", "AVAILABLE") == (status["version"], status["state"])
        with Client(grpc_line.split()[1], model="animals") as client:
            assert [b"sorrel"] == client.predict({"image": [b"horse"]}).outputs["output_0"].tolist()
        process.send_signal(signal.SIGINT)
        assert 0 == process.wait(60)
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert "Successfully loaded servable version {name: animals version: 1}" in log


def test_serve_has_no_page_if_it_is_turned_off_and_answers_to_names_of_this_machine(tmp_path: Path) -> None:
    model_makers.labelling(tmp_path / "animals")
    port, rest_api_port = free_port(), free_port()
    ports = ("--port", str(port), "--rest-api-port", str(rest_api_port))
    options = ("--no-playground", "--allowed-host", "my.proxy", *ports)
    with serving(str(tmp_path / "animals"), *options, log=tmp_path / "log") as process:
        assert process.stdout
        rest_line = [process.stdout.readline() for _ in range(3)][-1]
        origin = rest_line.split()[1].partition("/v1/")[0]
        for path in ("/", "/playground"):
            response = requests.get(origin + path, timeout=30)
            assert (404, "text/html") == (response.status_code, response.headers["Content-Type"])
        for host, status in (("localhost", 200), ("my.proxy:80", 200), ("evil.example", 403)):
            response = requests.get(f"{origin}/v1/models/animals", headers={"Host": host}, timeout=30)
            assert status == response.status_code, host


def test_a_full_pipe_does_not_keep_a_server_from_ending(tmp_path: Path) -> None:
    model_makers.labelling(tmp_path / "animals")
    rest_api_port = free_port()
    ports = ("--port", str(free_port()), "--rest-api-port", str(rest_api_port))
    read_end, write_end = os.pipe()
    with os.fdopen(read_end), os.fdopen(write_end, "wb") as output:
        output.write(bytes(fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ)))
        output.flush()
        command = [sys.executable, "-m", "savedmodel_bakery", "serve", str(tmp_path / "animals"), *ports]
        with subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL) as process:
            wait_until(lambda: is_served(rest_api_port), timeout_s=60)
            process.terminate()
            assert 0 == process.wait(30)


def is_served(rest_api_port: int) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{rest_api_port}/v1/models/animals", timeout=30).ok
    except requests.ConnectionError:
        return False


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (["1/saved_model.pb"], None),
        (["saved_model.pb"], "has a SavedModel, but is not named as a version: rename it to model/1"),
        (["flowers/1/saved_model.pb"], "are folders named 1, 2, 3, …; pass the folder of one model: model/flowers"),
    ],
    ids=["base path", "version", "model root"],
)
def test_serve_checks_the_folder_before_anything_else(tmp_path: Path, content: list[str], message: str | None) -> None:
    for name in content:
        (tmp_path / "model" / name).parent.mkdir(parents=True)
        (tmp_path / "model" / name).touch()
    ended = run("serve", "model", folder=tmp_path, without=("tensorflow",))
    if message is None:
        assert (1, True) == (ended.returncode, "[serve]'" in ended.stderr)
    else:
        assert (2, True) == (ended.returncode, message in " ".join(ended.stderr.split()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--port", "9500", "--rest-api-port", "9500"), "--port and --rest-api-port are both 9500: choose two"),
        (("--name", "a\nb"), "invalid name 'a\\nb': must be printable text; choose another with --name"),
    ],
)
def test_serve_rejects_options_that_can_not_work(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    (tmp_path / "model" / "1").mkdir(parents=True)
    ended = run("serve", "model", *options, folder=tmp_path)
    assert (2, "") == (ended.returncode, ended.stdout)
    assert message in " ".join(ended.stderr.split())


def test_serve_rejects_a_url_that_has_only_the_number_of_a_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, stderr = command_line.run(serve.serve, ["memory://1"], capsys)
    assert (2, True) == (code, "must be the URL of a folder, such as s3://bucket/models/flowers" in stderr)


def test_serve_names_a_port_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "model" / "1").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        ended = run("serve", "model", "--rest-api-port", port, "--port", str(free_port()), folder=tmp_path)
    assert 1 == ended.returncode
    assert (
        f"error: cannot listen on port {port}: Address already in use; choose another with --rest-api-port\n"
        == ended.stderr
    )


TAKES_A_PORT = """
import socket
import sys
from savedmodel_bakery.command import main
from savedmodel_bakery.serving.commands import model_server as cli

def import_and_take_the_port(imported=cli.import_tensorflow):
    global listener
    imported()
    listener = socket.create_server(("127.0.0.1", {port}))

cli.import_tensorflow = import_and_take_the_port
main()
"""


@pytest.mark.parametrize("option", ["--port", "--rest-api-port"])
def test_serve_names_a_port_that_was_taken_while_tensorflow_loaded(tmp_path: Path, option: str) -> None:
    model_makers.labelling(tmp_path / "animals")
    ports = {"--port": str(free_port()), "--rest-api-port": str(free_port())}
    command = [sys.executable, "-c", TAKES_A_PORT.format(port=ports[option]), "serve", str(tmp_path / "animals")]
    for pair in ports.items():
        command += pair
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (1, "") == (ended.returncode, ended.stdout)
    assert "Traceback" not in ended.stderr
    assert (
        f"error: cannot listen on port {ports[option]}: Address already in use; choose another with {option}"
        == ended.stderr.splitlines()[-1]
    )
