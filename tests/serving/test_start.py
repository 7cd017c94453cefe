"""The process starts and ends with tensorflow_model_server's texts, streams and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from importlib import metadata
from pathlib import Path

import grpc
import model_makers
import pytest
import requests
from server_process import ServerProcess, free_port

from savedmodel_bakery.serving.commands import model_server as cli
from savedmodel_bakery.serving.options import flags, settings
from savedmodel_bakery.serving.options.config_files import UnavailableVersionError
from savedmodel_bakery.wire.status import StatusError


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "savedmodel_bakery.serving", "--engine=embedded", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def test_help_prints_the_usage_to_stdout_and_exits_255() -> None:
    result = run("--help")
    assert result.returncode == 255
    assert result.stdout.startswith("usage: python -m savedmodel_bakery.serving\nFlags:\n")
    assert "see also: python -m savedmodel_bakery.serving amqp --help" == result.stdout.splitlines()[-1]
    assert result.stderr == ""


def test_a_bad_value_is_reported_on_stderr_and_the_usage_printed() -> None:
    result = run("--port=abc")
    assert result.returncode == 255
    assert result.stderr == "Couldn't interpret value abc for flag port.\n"
    assert result.stdout.startswith("usage: ")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--prot=8500"], "unknown argument: --prot=8500; did you mean --port=8500?\n"),
        (["--port", "8500"], 'unknown argument: --port; the value must follow "=": --port=8500\n'),
        (["a\nb\x1b"], "unknown argument: a\\nb\\x1b; flags are written --name=value\n"),
        ([""], 'unknown argument: ""; flags are written --name=value\n'),
    ],
    ids=["mistyped", "value without an equals sign", "control characters", "empty"],
)
def test_an_unknown_argument_ends_the_start(arguments: list[str], line: str) -> None:
    result = run("--model_base_path=/m", *arguments)
    assert (255, "", line) == (result.returncode, result.stdout, result.stderr)


def test_version_prints_two_lines_and_exits_0() -> None:
    result = run("--version")
    assert result.returncode == 0
    first, second = result.stdout.splitlines()
    assert first.startswith("TensorFlow ModelServer: ")
    assert second.startswith("TensorFlow Library: 2.21")


def test_version_reports_a_missing_tensorflow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metadata, "packages_distributions", dict[str, list[str]])
    monkeypatch.setattr(sys, "argv", ["serving", "--version"])
    cli.main(program="serving")
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
            id="ALTS and TLS",
        ),
        pytest.param(
            ["--model_base_path=/m", "--ssl_config_file=x", "--rest_api_port=8501"],
            "gRPC has TLS (--ssl_config_file), but REST would have none; set --rest_ssl_config_file, "
            "--rest_api_port=0, or --allow_plaintext_rest",
            id="TLS for gRPC only",
        ),
        pytest.param(
            ["--model_base_path=/m", "--enable_playground"],
            "--enable_playground needs the REST port: set --rest_api_port",
            id="playground without REST",
        ),
        pytest.param(
            ["--model_base_path=/m", "--rest_api_port=8501", "--health_route=ping"],
            "invalid health_route ping: must be a path such as /ping, without a query",
            id="route",
        ),
        pytest.param(
            ["--model_base_path=/m", "--predict_route=/invocations"],
            "--predict_route needs the REST port: set --rest_api_port",
            id="route without REST",
        ),
        pytest.param(
            ["--model_base_path=/m", "--rest_api_port=8501", "--health_route=/a", "--predict_route=/a"],
            "health_route and predict_route are both /a: choose two different paths",
            id="routes",
        ),
        pytest.param(
            ["--model_base_path=/m", "--stage_sample_interval=100"],
            "--stage_sample_interval needs the metrics page: set --monitoring_config_file",
            id="stages without metrics",
        ),
        pytest.param(
            ["--model_base_path=/m", "--rest_api_port=99999"],
            "invalid rest_api_port 99999: must be between 0 and 65535",
            id="port",
        ),
        pytest.param(
            ["--model_base_path=/m", "--grpc_max_threads=-1"],
            "invalid grpc_max_threads -1: must be between 0 and 65536",
            id="threads",
        ),
        pytest.param(
            ["--model_base_path=/m", "--max_rows_per_request=0"],
            "invalid max_rows_per_request 0: must be between 1 and 2147483647",
            id="rows",
        ),
        pytest.param(
            ["--model_base_path=/m", "--header_timeout_seconds=2147484"],
            "invalid header_timeout_seconds 2147484: must be between 1 and 2147483",
            id="time for headers",
        ),
        pytest.param(
            ["--model_base_path=/m", "--allowed_model_roots=models"],
            "invalid allowed_model_roots models: each folder must be an absolute path",
            id="relative root",
        ),
        pytest.param(
            ["--model_base_path=models/m", "--model_name=m"],
            "Expected model m to have an absolute path or URI; got base_path()=models/m",
            id="relative base path",
        ),
    ],
)
def test_invalid_flags_have_a_reason(arguments: list[str], message: str) -> None:
    def read(command_line: flags.CommandLine) -> None:
        settings.check_flags(command_line)
        settings.read_settings(command_line)

    with pytest.raises(StatusError) as raised:
        read(flags.parse(arguments))
    assert f"INVALID_ARGUMENT: {message}" == str(raised.value)


def test_invalid_flags_end_the_start_with_one_line() -> None:
    result = run("--model_base_path=models/m\n", "--model_name=m")
    message = r"Expected model m to have an absolute path or URI; got base_path()=models/m\n"
    assert (255, f"Failed to start server. Error: INVALID_ARGUMENT: {message}\n") == (result.returncode, result.stdout)


def test_the_parse_error_of_a_config_file_is_printed_to_stderr(tmp_path: Path) -> None:
    config = tmp_path / "models.config"
    config.write_text("model_config_list { config { nme: 1 } }")
    result = run(f"--model_config_file={config}")
    assert result.returncode == 255
    assert "Error parsing text-format tensorflow.serving.ModelServerConfig: 1:" in result.stderr
    assert f"Failed to start server. Error: INVALID_ARGUMENT: Invalid protobuf file: '{config}'\n" == result.stdout


def test_a_model_that_cannot_be_loaded_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    result = run(
        f"--port={free_port()}", "--model_name=m", f"--model_base_path={tmp_path}/m", "--max_num_load_retries=0"
    )
    assert result.returncode == 255
    assert result.stdout.startswith(
        "Failed to start server. Error: UNKNOWN: 1 servable(s) did not become available: "
        "{{{name: m version: 1} due to error: NOT_FOUND: Specified file path does not appear to contain a SavedModel"
    )
    assert result.stdout.endswith("}, }\n")


def test_a_label_for_an_unavailable_version_ends_the_start(half_plus_two: Path, tmp_path: Path) -> None:
    config = tmp_path / "models.config"
    config.write_text(
        f'model_config_list {{ config {{ name: "m" base_path: "{half_plus_two}" model_platform: "tensorflow" '
        'version_labels { key: "stable" value: 1 } } }'
    )
    result = run(f"--port={free_port()}", f"--model_config_file={config}")
    assert result.returncode == 255
    assert "FAILED_PRECONDITION: Request to assign label to version 1 of model m, which is not" in result.stdout
    assert UnavailableVersionError.hint in result.stdout


def test_a_grpc_port_in_use_ends_the_start(half_plus_two: Path, tmp_path: Path) -> None:
    flags = (f"--model_base_path={half_plus_two}",)
    with ServerProcess(*flags, log=tmp_path / "log") as first:
        result = run(f"--port={first.port}", "--bind_address=127.0.0.1", *flags)
    assert result.returncode == 255
    assert result.stdout == "Failed to start server. Error: INVALID_ARGUMENT: Failed to BuildAndStart gRPC server\n"


def test_ports_open_only_when_the_model_is_available(tmp_path: Path) -> None:
    """The server waits for a missing base path, and ignores an unknown argument as the real server does."""
    base_path = tmp_path / "m"
    flags = (f"--model_base_path={base_path}", "--model_name=m", "foo", "--allow_unknown_flags")
    server = ServerProcess(*flags, log=tmp_path / "log", wait=False)
    with server:
        server.wait_for_log("Could not find base path")
        assert not server.is_listening()
        model_makers.half_plus(base_path, 1)
        server.wait_until_listening()
        server.wait_for_log(f"Exporting HTTP/REST API at:localhost:{server.rest_api_port} ...")
        log = server.log.read_text()
        assert "unknown argument: foo\nusage: " in log
        assert f"Running gRPC ModelServer at 127.0.0.1:{server.port} ..." in log


def test_sigterm_while_waiting_for_a_model_exits_0(tmp_path: Path) -> None:
    with ServerProcess(f"--model_base_path={tmp_path}/none", log=tmp_path / "log", wait=False) as server:
        server.wait_for_log("Could not find base path")
        assert server.stop() == 0


def test_sigterm_lets_running_requests_finish_and_exits_0(half_plus_two: Path, tmp_path: Path) -> None:
    """A REST call of about a second is answered although SIGTERM arrives while it runs."""
    with ServerProcess(f"--model_base_path={half_plus_two}", log=tmp_path / "log") as server:
        url = f"{server.url}/v1/models/default:predict"
        steps = server.slow_steps("default", 0.5)
        responses = []

        def send_slow_request() -> None:
            body = {"signature_name": "slow", "inputs": 2 * steps}
            responses.append(requests.post(url, json=body, timeout=60).json())

        caller = threading.Thread(target=send_slow_request)
        caller.start()
        server.wait_until_busy()
        assert server.stop() == 0
        caller.join()
    assert [{"outputs": float(2 * steps)}] == responses


@pytest.mark.parametrize("content", [b"\xff\xfe", b"model_config_list {"], ids=["invalid UTF-8", "truncated"])
def test_an_invalid_config_file_ends_the_start(tmp_path: Path, content: bytes) -> None:
    config = tmp_path / "models.config"
    config.write_bytes(content)
    result = run(f"--model_config_file={config}")
    assert result.returncode == 255
    assert result.stderr.startswith("Error parsing text-format tensorflow.serving.ModelServerConfig: ")


def test_a_folder_name_that_is_not_valid_utf8_is_ignored(tmp_path: Path) -> None:
    model_makers.half_plus(tmp_path / "m", 1)
    (tmp_path / "m" / os.fsdecode(b"\xff")).mkdir()
    with ServerProcess(f"--model_base_path={tmp_path}/m", log=tmp_path / "log") as server:
        assert requests.get(f"{server.url}/v1/models/default", timeout=30).ok


def test_failing_versions_do_not_delay_others(tmp_path: Path) -> None:
    """Nine empty folders wait a minute for their retries; the valid version is loaded meanwhile."""
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


def test_a_regular_file_at_the_socket_path_is_not_removed(half_plus_two: Path, tmp_path: Path) -> None:
    file = tmp_path / "socket"
    file.write_text("content")
    result = run(f"--port={free_port()}", f"--model_base_path={half_plus_two}", f"--grpc_socket_path={file}")
    assert result.returncode == 255
    assert "Failed to BuildAndStart gRPC server" in result.stdout
    assert "content" == file.read_text()


def test_the_unix_socket_of_a_killed_server_is_replaced(half_plus_two: Path, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    for _ in range(2):
        flags = (f"--model_base_path={half_plus_two}", f"--grpc_socket_path={path}")
        with ServerProcess(*flags, log=tmp_path / "log") as server:
            with grpc.insecure_channel(f"unix:{path}") as channel:
                grpc.channel_ready_future(channel).result(20)
            server.process.kill()


def test_method_names_are_checked_with_the_flag(half_plus_two: Path, tmp_path: Path) -> None:
    flags = (f"--model_base_path={half_plus_two}", "--enable_signature_method_name_check")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        url = f"{server.url}/v1/models/default:regress"
        body = {"signature_name": "classify", "examples": [{"x": 1.0}]}
        assert {
            "error": "Expected regression signature method_name to be tensorflow/serving/regress. "
            "Was: tensorflow/serving/classify"
        } == requests.post(url, json=body, timeout=30).json()


def test_tf_text_is_imported_before_the_load_if_installed(half_plus_two: Path, tmp_path: Path) -> None:
    """A stub stands in for TF Text, which is too large to install for this test."""
    (tmp_path / "tensorflow_text.py").write_text("print('TF Text is here', flush=True)")
    command = [sys.executable, "-m", "savedmodel_bakery.serving", "--engine=embedded", f"--port={free_port()}"]
    flags = [f"--model_base_path={half_plus_two}", "--saved_model_tags=nosuch", "--max_num_load_retries=0"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run(
        [*command, *flags], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    imported, failed = result.stdout.splitlines()
    assert "TF Text is here" == imported
    assert failed.startswith("Failed to start server. Error: UNKNOWN: 1 servable(s) did not become available")
