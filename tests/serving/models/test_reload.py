"""Another configuration is put in force under a running server, by RPC and by a file that is read again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import model_makers
import pytest
import requests
from google.protobuf import text_format
from server_process import ServerProcess
from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc

FLAGS = ("--max_num_load_retries=0", "--load_retry_interval_micros=-1")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models a (versions 1 and 2), b (version 1) and a broken one."""
    path = tmp_path_factory.mktemp("reload")
    for version in (1, 2):
        model_makers.half_plus(path / "a", version, plus=float(version))
    model_makers.half_plus(path / "b", 1, plus=10.0)
    model_makers.broken(path / "broken", 1)
    return path


def config(root: Path, *models: str, policy: str = "", labels: dict[str, int] | None = None) -> str:
    """Text of a ModelServerConfig; policy and labels are those of model a."""
    listed = "".join(f'version_labels {{ key: "{key}" value: {value} }} ' for key, value in (labels or {}).items())
    own = {"a": f"model_version_policy {{ {policy} }} {listed}" if policy else listed}
    configs = "".join(
        f'config {{ name: "{name}" base_path: "{root}/{name}" model_platform: "tensorflow" {own.get(name, "")} }}'
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


def answer(server: ServerProcess, place: str) -> object:
    reply = requests.post(f"{server.url}/v1/models/{place}:predict", json={"instances": [0.0]}, timeout=30)
    return reply.json().get("predictions", reply.status_code)


def wait_until(server: ServerProcess, place: str, expected: object) -> None:
    end = time.monotonic() + 20
    while (found := answer(server, place)) != expected:
        assert time.monotonic() < end, f"expected {expected}, found {found}"
        time.sleep(0.1)


ALL = "all {}"


def test_models_come_and_go_and_labels_move(server: ServerProcess, root: Path) -> None:
    reload(server, config(root, "a", "b"))
    assert ([2.0], [10.0]) == (answer(server, "a"), answer(server, "b"))
    reload(server, config(root, "b", "a", policy=ALL))
    wait_until(server, "a/versions/1", [1.0])
    reload(server, config(root, "b", "a", policy=ALL, labels={"stable": 1}))
    assert [1.0] == answer(server, "a/labels/stable")
    reload(server, config(root, "b", "a", policy=ALL, labels={"stable": 2}))
    assert [2.0] == answer(server, "a/labels/stable")
    reload(server, config(root, "b"))
    wait_until(server, "a", 404)
    assert [10.0] == answer(server, "b")
    reload(server, config(root, "a"))
    assert [2.0] == answer(server, "a")
    reload(server, config(root))
    wait_until(server, "a", 404)


def test_metrics_that_are_asked_for_are_named(server: ServerProcess, root: Path) -> None:
    answered = reload(server, config(root, "a"), "/b", "/a")
    assert [("/a", 0), ("/b", 0)] == [(row.name, row.int64_value_increase) for row in answered.metric]


def test_a_model_that_fails_is_told_and_the_rest_is_in_force(server: ServerProcess, root: Path) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        reload(server, config(root, "b", "broken"))
    assert grpc.StatusCode.UNKNOWN is refused.value.code()
    assert refused.value.details().startswith(
        "1 model(s) did not become available: {{{name: broken version: 1} due to error: "
    )
    assert [10.0] == answer(server, "b")
    wait_until(server, "a", 404)


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
    ids=["no list", "relative", "another platform", "label of nothing"],
)
def test_a_refusal_changes_nothing(server: ServerProcess, text: str, code: str, message: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        reload(server, text)
    assert (code, message) == (refused.value.code().name, refused.value.details())
    assert [2.0] == answer(server, "a")


def test_requests_to_be_logged_are_refused_when_all_else_is_in_force(server: ServerProcess, root: Path) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        reload(server, config(root, "b").replace("config {", "config { logging_config {}", 1))
    assert ("INVALID_ARGUMENT", "No request-logger-creator provided.") == (
        refused.value.code().name,
        refused.value.details(),
    )
    assert [10.0] == answer(server, "b")


def test_the_file_is_read_again_and_a_bad_one_is_passed_over(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "models.config"
    file.write_text(config(root, "a"))
    flags = (f"--model_config_file={file}", "--model_config_file_poll_wait_seconds=1")
    with ServerProcess(*flags, *FLAGS, log=tmp_path / "log") as server:
        file.write_text("model_config_list {")
        server.wait_for_log("Failed to read ModelServerConfig file: ")
        assert [2.0] == answer(server, "a")
        file.write_text("# nothing")
        server.wait_for_log("Cannot transition to requested config.")
        assert [2.0] == answer(server, "a")
        file.write_text(config(root, "b").replace(str(root), f"file://{root}"))
        wait_until(server, "b", [10.0])
        wait_until(server, "a", 404)
        assert server.stop() == 0
