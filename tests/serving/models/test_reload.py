"""A running server takes a new configuration by RPC or by rereading the config file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import model_makers
import pytest
import requests
from google.protobuf import text_format
from server_process import ServerProcess
from tensorflow_serving.apis import get_model_status_pb2, model_management_pb2, model_service_pb2_grpc
from waiting import wait_until

from savedmodel_bakery.serving.options.config_files import UnavailableVersionError

FLAGS = ("--max_num_load_retries=0", "--load_retry_interval_micros=-1")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the models a (versions 1 and 2), b (version 1) and one that can't be loaded."""
    path = tmp_path_factory.mktemp("reload")
    for version in (1, 2):
        model_makers.half_plus(path / "a", version, plus=float(version))
    model_makers.half_plus(path / "b", 1, plus=10.0)
    model_makers.broken(path / "broken", 1)
    return path


def config(root: Path, *models: str, policy: str = "", labels: dict[str, int] | None = None) -> str:
    """Return the text of a ModelServerConfig; policy and labels apply to model a."""
    settings = "".join(f'version_labels {{ key: "{key}" value: {value} }} ' for key, value in (labels or {}).items())
    if policy:
        settings += f"model_version_policy {{ {policy} }}"
    configs = "".join(
        f'config {{ name: "{name}" base_path: "{root}/{name}" model_platform: "tensorflow" '
        f"{settings if name == 'a' else ''} }}"
        for name in models
    )
    return f"model_config_list {{ {configs} }}"


@pytest.fixture
def server(root: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    file = tmp_path / "models.config"
    file.write_text(config(root, "a"))
    with ServerProcess(f"--model_config_file={file}", *FLAGS, log=tmp_path / "log") as running:
        yield running


def reload(server: ServerProcess, text: str, *metrics: str) -> object:
    request = model_management_pb2.ReloadConfigRequest(metric_names=metrics)
    text_format.Parse(text, request.config)
    with grpc.insecure_channel(server.target) as channel:
        return model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest(request, timeout=30)


def predictions(server: ServerProcess, model: str) -> object:
    """Return the predictions for 0, or the status code of an error."""
    response = requests.post(f"{server.url}/v1/models/{model}:predict", json={"instances": [0.0]}, timeout=30)
    return response.json().get("predictions", response.status_code)


def wait_for(server: ServerProcess, model: str, expected: object) -> None:
    wait_until(lambda: predictions(server, model) == expected, describe=lambda: (expected, predictions(server, model)))


ALL = "all {}"


def test_models_and_labels_follow_the_configuration(server: ServerProcess, root: Path) -> None:
    reload(server, config(root, "a", "b"))
    assert ([2.0], [10.0]) == (predictions(server, "a"), predictions(server, "b"))
    reload(server, config(root, "b", "a", policy=ALL))
    wait_for(server, "a/versions/1", [1.0])
    reload(server, config(root, "b", "a", policy=ALL, labels={"stable": 1}))
    assert [1.0] == predictions(server, "a/labels/stable")
    reload(server, config(root, "b", "a", policy=ALL, labels={"stable": 2}))
    assert [2.0] == predictions(server, "a/labels/stable")
    reload(server, config(root, "b"))
    wait_for(server, "a", 404)
    assert [10.0] == predictions(server, "b")
    reload(server, config(root, "a"))
    assert [2.0] == predictions(server, "a")
    reload(server, config(root))
    wait_for(server, "a", 404)


def test_requested_metrics_are_returned(server: ServerProcess, root: Path) -> None:
    response = reload(server, config(root, "a"), "/b", "/a")
    assert [("/a", 0), ("/b", 0)] == [(row.name, row.int64_value_increase) for row in response.metric]


def test_a_failing_model_is_reported_and_the_others_are_served(server: ServerProcess, root: Path) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        reload(server, config(root, "b", "broken"))
    assert grpc.StatusCode.UNKNOWN is caught.value.code()
    assert caught.value.details().startswith(
        "1 model(s) did not become available: {{{name: broken version: 1} due to error: "
    )
    assert [10.0] == predictions(server, "b")
    wait_for(server, "a", 404)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (
            "",
            "INVALID_ARGUMENT",
            "ServerModelConfig type not supported by HandleReloadConfigRequest. "
            "Only ModelConfigList is currently supported",
        ),
        (
            'model_config_list { config { name: "a" base_path: "a" model_platform: "tensorflow" } }',
            "INVALID_ARGUMENT",
            "Expected model a to have an absolute path or URI; got base_path()=a",
        ),
        (
            'model_config_list { config { name: "a" base_path: "/a" model_platform: "caffe" } }',
            "INVALID_ARGUMENT",
            "Illegal to change a model's platform. For model a platform was tensorflow and new platform requested is "
            "caffe",
        ),
        (
            'model_config_list { config { name: "a" base_path: "/a" model_platform: "tensorflow" '
            'version_labels { key: "stable" value: 7 } } }',
            "FAILED_PRECONDITION",
            "Request to assign label to version 7 of model a, which is not currently available for inference",
        ),
    ],
    ids=["no list", "relative", "another platform", "label of an unavailable version"],
)
def test_an_invalid_configuration_changes_nothing(server: ServerProcess, text: str, code: str, message: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        reload(server, text)
    assert (code, message) == (caught.value.code().name, caught.value.details())
    assert [2.0] == predictions(server, "a")
    assert (code == "FAILED_PRECONDITION") == ("A label can only be assigned to" in server.log.read_text())


def test_nine_calls_with_a_wrong_base_path_delay_no_one(server: ServerProcess, root: Path) -> None:
    """Eight are replaced; the last one waits for the folder until a correct configuration replaces it too."""

    def code() -> str:
        with pytest.raises(grpc.RpcError) as caught:
            reload(server, config(root, "a", "missing"))
        return str(caught.value.code().name)

    with ThreadPoolExecutor(9) as pool:
        calls = [pool.submit(code) for _ in range(9)]
        wait_until(lambda: sum(call.done() for call in calls) == 8)
        with grpc.insecure_channel(server.target) as channel:
            message = get_model_status_pb2.GetModelStatusRequest()
            message.model_spec.name = "a"
            status = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(message, timeout=10)
        assert 2 == status.model_version_status[0].version
        assert [2.0] == predictions(server, "a")
        reload(server, config(root, "a", "b"))
    assert {"ABORTED"} == {call.result() for call in calls}
    assert [10.0] == predictions(server, "b")


def test_models_outside_the_allowed_folders_are_not_loaded(root: Path, tmp_path: Path) -> None:
    """Neither by RPC, nor from the polled file, nor through a version that is a symbolic link."""
    allowed, file = tmp_path / "allowed", tmp_path / "models.config"
    shutil.copytree(root / "a", allowed / "a")
    (allowed / "b").symlink_to(root / "b")
    file.write_text(config(allowed, "a"))
    flags = (
        f"--model_config_file={file}",
        "--model_config_file_poll_wait_seconds=1",
        f"--allowed_model_roots={allowed}",
    )
    with ServerProcess(*flags, *FLAGS, log=tmp_path / "log") as server:
        for base in (allowed, root):
            with pytest.raises(grpc.RpcError) as caught:
                reload(server, config(base, "b"))
            assert grpc.StatusCode.PERMISSION_DENIED is caught.value.code()
            assert f"is not below an allowed folder: {allowed} (--allowed_model_roots)" in caught.value.details()
        (allowed / "a" / "3").symlink_to(root / "b" / "1")
        error = f"version 3 of model a: {allowed}/a/3 leads to {root}/b/1, which is not below an allowed folder"
        server.wait_for_log(f"Loading servable {{name: a version: 3}} failed: PERMISSION_DENIED: {error}")
        file.write_text(config(root, "a"))
        server.wait_for_log("PollFilesystemAndReloadConfig failed to ReloadConfig: PERMISSION_DENIED: base path of")
        assert [2.0] == predictions(server, "a")


def test_request_logging_is_rejected_after_the_rest_took_effect(server: ServerProcess, root: Path) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        reload(server, config(root, "b").replace("config {", "config { logging_config {}", 1))
    assert ("INVALID_ARGUMENT", "No request-logger-creator provided.") == (
        caught.value.code().name,
        caught.value.details(),
    )
    assert [10.0] == predictions(server, "b")


def test_the_file_is_reread_and_an_invalid_one_is_ignored(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "models.config"
    file.write_text(config(root, "a", "missing-at-first"))
    flags = (f"--model_config_file={file}", "--model_config_file_poll_wait_seconds=1")
    with ServerProcess(*flags, *FLAGS, log=tmp_path / "log", wait=False) as server:
        server.wait_for_log(f"Could not find base path {root}/missing-at-first")
        file.write_text(config(root, "a"))
        server.wait_until_listening()
        file.write_text("model_config_list {")
        server.wait_for_log("Failed to read ModelServerConfig file: ")
        assert [2.0] == predictions(server, "a")
        file.write_text("# nothing")
        server.wait_for_log("Cannot transition to requested config.")
        assert [2.0] == predictions(server, "a")
        for hints, version in ((1, 7), (2, 8)):
            file.write_text(config(root, "a", labels={"stable": version}))
            refusal = f"Request to assign label to version {version} of model a"
            wait_until(lambda refusal=refusal: server.log.read_text().count(refusal) >= 2)
            assert hints == server.log.read_text().count(UnavailableVersionError.hint)
        file.write_text(config(root, "a", "missing"))
        server.wait_for_log(f"Could not find base path {root}/missing for")
        file.write_text(config(root, "b").replace(str(root), f"file://{root}"))
        wait_for(server, "b", [10.0])
        wait_for(server, "a", 404)
        assert server.stop() == 0
