"""Start and end of the process: texts, streams and exit codes are tensorflow_model_server's."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path

import grpc
import model_makers
import pytest
import requests
from server_process import ServerProcess, free_port

from savedmodel_bakery.serving import cli


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "savedmodel_bakery.serving", "--engine=embedded", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def test_help_is_usage_on_stdout_and_255() -> None:
    ended = run("--help")
    assert ended.returncode == 255
    assert ended.stdout.startswith("usage: python -m serving\nFlags:\n")
    assert ["see also: python -m serving amqp --help", "see also: python -m serving batch --help"] == (
        ended.stdout.splitlines()[-2:]
    )
    assert ended.stderr == ""


def test_a_bad_value_is_named_on_stderr_and_usage_follows() -> None:
    ended = run("--port=abc")
    assert ended.returncode == 255
    assert ended.stderr == "Couldn't interpret value abc for flag port.\n"
    assert ended.stdout.startswith("usage: ")


def test_version_is_two_lines_and_0() -> None:
    ended = run("--version")
    assert ended.returncode == 0
    first, second = ended.stdout.splitlines()
    assert first.startswith("TensorFlow ModelServer: ")
    assert second.startswith("TensorFlow Library: 2.21")


def test_version_says_that_tensorflow_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metadata, "packages_distributions", dict[str, list[str]])
    monkeypatch.setattr(sys, "argv", ["serving", "--version"])
    cli.main()
    assert "TensorFlow Library: not installed" == capsys.readouterr().out.splitlines()[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["--port=0", "--model_base_path=/m"],
            "At least one of server_options.grpc_port or server_options.grpc_socket_path must be set.",
            id="no port",
        ),
        pytest.param(
            [], "Both server_options.model_base_path and server_options.model_config_file are empty!", id="no model"
        ),
        pytest.param(
            ["--model_base_path=/m", "--batching_parameters_file=x"],
            "server_options.batching_parameters_file is set without setting server_options.enable_batching to true.",
            id="batching file without batching",
        ),
        pytest.param(
            ["--model_base_path=/m", "--use_alts_credentials", "--ssl_config_file=x"],
            "Either use_alts_credentials must be false or ssl_config_file must be empty.",
            id="two kinds of credentials",
        ),
        pytest.param(
            ["--model_base_path=/m", "--rest_api_port=99999"],
            "rest_api_port is 99999; allowed are 0 to 65535",
            id="port",
        ),
        pytest.param(
            ["--model_base_path=/m", "--grpc_max_threads=-1"],
            "grpc_max_threads is -1; allowed are 0 to 65536",
            id="threads",
        ),
        pytest.param(
            ["--model_base_path=models/m", "--model_name=m"],
            "Expected model m to have an absolute path or URI; got base_path()=models/m",
            id="relative base path",
        ),
    ],
)
def test_contradictions_end_the_start(arguments: list[str], message: str) -> None:
    ended = run(*arguments)
    assert ended.returncode == 255
    assert f"Failed to start server. Error: INVALID_ARGUMENT: {message}\n" == ended.stdout


def test_a_config_file_that_does_not_parse_is_told_on_stderr(tmp_path: Path) -> None:
    config = tmp_path / "models.config"
    config.write_text("model_config_list { config { nme: 1 } }")
    ended = run(f"--model_config_file={config}")
    assert ended.returncode == 255
    assert "Error parsing text-format tensorflow.serving.ModelServerConfig: 1:" in ended.stderr
    assert f"Failed to start server. Error: INVALID_ARGUMENT: Invalid protobuf file: '{config}'\n" == ended.stdout


def test_a_model_that_cannot_be_loaded_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    ended = run(
        f"--port={free_port()}", "--model_name=m", f"--model_base_path={tmp_path}/m", "--max_num_load_retries=0"
    )
    assert ended.returncode == 255
    assert ended.stdout.startswith(
        "Failed to start server. Error: UNKNOWN: 1 servable(s) did not become available: "
        "{{{name: m version: 1} due to error: NOT_FOUND: Specified file path does not appear to contain a SavedModel"
    )
    assert ended.stdout.endswith("}, }\n")


def test_a_label_for_a_version_that_is_not_there_ends_the_start(half_plus_two: Path, tmp_path: Path) -> None:
    config = tmp_path / "models.config"
    config.write_text(
        f'model_config_list {{ config {{ name: "m" base_path: "{half_plus_two}" model_platform: "tensorflow" '
        'version_labels { key: "stable" value: 1 } } }'
    )
    ended = run(f"--port={free_port()}", f"--model_config_file={config}")
    assert ended.returncode == 255
    assert "FAILED_PRECONDITION: Request to assign label to version 1 of model m, which is not" in ended.stdout


def test_a_grpc_port_that_is_taken_ends_the_start(half_plus_two: Path, tmp_path: Path) -> None:
    flags = (f"--model_base_path={half_plus_two}",)
    with ServerProcess(*flags, log=tmp_path / "log") as first:
        ended = run(f"--port={first.port}", "--bind_address=127.0.0.1", *flags)
    assert ended.returncode == 255
    assert ended.stdout == "Failed to start server. Error: INVALID_ARGUMENT: Failed to BuildAndStart gRPC server\n"


def test_no_port_opens_before_a_model_answers_and_an_unknown_argument_is_passed_over(tmp_path: Path) -> None:
    """A base path that isn't there yet is waited for."""
    base_path = tmp_path / "m"
    server = ServerProcess(f"--model_base_path={base_path}", "--model_name=m", "foo", log=tmp_path / "log", wait=False)
    with server:
        server.wait_for_log("Could not find base path")
        assert not server.is_listening()
        model_makers.half_plus(base_path, 1)
        server.wait_until_listening()
        log = server.log.read_text()
        assert "unknown argument: foo\nusage: " in log
        assert f"Running gRPC ModelServer at 127.0.0.1:{server.port} ..." in log
        assert f"Exporting HTTP/REST API at:localhost:{server.rest_api_port} ..." in log


def test_sigterm_while_waiting_for_a_model_ends_with_0(tmp_path: Path) -> None:
    with ServerProcess(f"--model_base_path={tmp_path}/none", log=tmp_path / "log", wait=False) as server:
        server.wait_for_log("Could not find base path")
        assert server.stop() == 0


def test_sigterm_lets_requests_in_flight_finish_and_exits_0(half_plus_two: Path, tmp_path: Path) -> None:
    """A REST call that takes about two seconds is answered although the server is told to stop meanwhile."""
    with ServerProcess(f"--model_base_path={half_plus_two}", log=tmp_path / "log") as server:
        url = f"{server.url}/v1/models/default:predict"
        steps = server.slow_steps("default", 1.0)
        answers = []

        def ask() -> None:
            body = {"signature_name": "slow", "inputs": 2 * steps}
            answers.append(requests.post(url, json=body, timeout=60).json())

        caller = threading.Thread(target=ask)
        caller.start()
        time.sleep(0.5)
        assert server.stop() == 0
        caller.join()
    assert [{"outputs": float(2 * steps)}] == answers


@pytest.mark.parametrize("content", [b"\xff\xfe", b"model_config_list {"], ids=["no UTF-8", "cut off"])
def test_a_config_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    config = tmp_path / "models.config"
    config.write_bytes(content)
    ended = run(f"--model_config_file={config}")
    assert ended.returncode == 255
    assert ended.stderr.startswith("Error parsing text-format tensorflow.serving.ModelServerConfig: ")


def test_a_name_that_is_no_utf8_beside_the_versions_is_passed_over(tmp_path: Path) -> None:
    model_makers.half_plus(tmp_path / "m", 1)
    (tmp_path / "m" / os.fsdecode(b"\xff")).mkdir()
    with ServerProcess(f"--model_base_path={tmp_path}/m", log=tmp_path / "log") as server:
        assert requests.get(f"{server.url}/v1/models/default", timeout=30).ok


def test_failing_versions_hold_up_no_good_one(tmp_path: Path) -> None:
    """Nine empty folders wait a minute between attempts; the version below them is loaded meanwhile."""
    model_makers.half_plus(tmp_path / "m", 1)
    for number in range(2, 11):
        (tmp_path / "m" / str(number)).mkdir()
    config = tmp_path / "models.config"
    config.write_text(
        f'model_config_list {{ config {{ name: "m" base_path: "{tmp_path}/m" model_platform: "tensorflow" '
        "model_version_policy { all {} } } }"
    )
    with ServerProcess(f"--model_config_file={config}", log=tmp_path / "log") as server:
        states = requests.get(f"{server.url}/v1/models/m", timeout=30).json()["model_version_status"]
        assert ["LOADING"] * 9 + ["AVAILABLE"] == [entry["state"] for entry in states]
        assert server.stop() == 0


def test_a_file_in_the_way_of_the_unix_socket_is_left_alone(half_plus_two: Path, tmp_path: Path) -> None:
    precious = tmp_path / "socket"
    precious.write_text("precious")
    ended = run(f"--port={free_port()}", f"--model_base_path={half_plus_two}", f"--grpc_socket_path={precious}")
    assert ended.returncode == 255
    assert "Failed to BuildAndStart gRPC server" in ended.stdout
    assert "precious" == precious.read_text()


def test_a_unix_socket_that_a_killed_server_left_is_taken_over(half_plus_two: Path, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    for _ in range(2):
        flags = (f"--model_base_path={half_plus_two}", f"--grpc_socket_path={path}")
        with ServerProcess(*flags, log=tmp_path / "log") as server:
            with grpc.insecure_channel(f"unix:{path}") as channel:
                grpc.channel_ready_future(channel).result(20)
            server.process.kill()


def test_method_names_are_checked_where_that_is_asked_for(half_plus_two: Path, tmp_path: Path) -> None:
    flags = (f"--model_base_path={half_plus_two}", "--enable_signature_method_name_check")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        url = f"{server.url}/v1/models/default:regress"
        body = {"signature_name": "classify", "examples": [{"x": 1.0}]}
        assert {
            "error": "Expected regression signature method_name to be tensorflow/serving/regress. "
            "Was: tensorflow/serving/classify"
        } == requests.post(url, json=body, timeout=30).json()


def test_tf_text_is_imported_before_the_load_where_it_is_installed(half_plus_two: Path, tmp_path: Path) -> None:
    """What it registers then is its own affair; the package is too large to install for this alone."""
    (tmp_path / "tensorflow_text.py").write_text("print('TF Text is here', flush=True)")
    command = [
        sys.executable,
        "-m",
        "serving",
        "--engine=embedded",
        f"--port={free_port()}",
        "--bind_address=127.0.0.1",
    ]
    flags = [f"--model_base_path={half_plus_two}", "--saved_model_tags=nosuch", "--max_num_load_retries=0"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run([*command, *flags], env=environment, capture_output=True, text=True, timeout=60, check=False)
    imported, failed = ended.stdout.splitlines()
    assert "TF Text is here" == imported
    assert failed.startswith("Failed to start server. Error: UNKNOWN: 1 servable(s) did not become available")
