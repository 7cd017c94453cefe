"""The metrics page has the real server's names and labels, and its numbers follow the calls."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import grpc
import model_makers
import numpy as np
import pytest
import requests
import tensorflow as tf
from prometheus_client.parser import text_string_to_metric_families
from server_process import ServerProcess
from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc, predict_pb2, prediction_log_pb2

from savedmodel_bakery.wire.v2 import schema

PATH = "/some/metrics"
LATENCY_BOUNDS = [f"{10 * 1.8**power:g}" for power in range(33)]


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with metrics, batching and one warm-up request for its model `a "name"`."""
    root = tmp_path_factory.mktemp("monitored")
    path = model_makers.half_plus(root / "m", 1)
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.float32([1])))
    model_makers.write_warmup(path, [log.SerializeToString()])
    monitoring, batching = root / "monitoring", root / "batching"
    monitoring.write_text(f'prometheus_config {{ enable: true path: "{PATH}" }}')
    batching.write_text("max_batch_size { value: 4 } allowed_batch_sizes: 4 batch_timeout_micros { value: 0 }")
    flags = (
        '--model_name=a "name"',
        f"--model_base_path={root / 'm'}",
        f"--monitoring_config_file={monitoring}",
        "--enable_batching",
        f"--batching_parameters_file={batching}",
        "--max_unpacked_bytes=1000",
    )
    with ServerProcess(*flags, log=root / "log") as running:
        yield running


def samples(server: ServerProcess) -> dict[str, float]:
    """Return the real server's values by name and labels, without the common prefix of the names."""
    values = {}
    for line in requests.get(server.url + PATH, timeout=30).text.splitlines():
        if line.startswith(":tensorflow:serving:"):
            name, _, value = line.rpartition(" ")
            values[name.removeprefix(":tensorflow:serving:")] = float(value)
    return values


def growth(server: ServerProcess, call: object) -> dict[str, float]:
    """Return by how much each value grows during a call."""
    before = samples(server)
    call()  # type: ignore[operator]
    after = samples(server)
    return {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}


def predict(server: ServerProcess, **body: object) -> None:
    requests.post(f"{server.url}/v1/models/a%20%22name%22:predict", json=body, timeout=30)


NAME = r'model_name="a \"name\""'


def test_a_rest_call_is_counted_and_timed(monitored: ServerProcess) -> None:
    grown = growth(monitored, lambda: predict(monitored, instances=[1.0, 2.0, 3.0]))
    for name in (
        f'request_count{{{NAME},status="OK"}}',
        f'request_latency_count{{{NAME},API="predict",entrypoint="REST"}}',
        f'request_latency_bucket{{{NAME},API="predict",entrypoint="REST",le="+Inf"}}',
        f'runtime_latency_count{{{NAME},API="Predict",runtime="TF1"}}',
        'batching_session:queuing_latency_count{thread_pool_name=""}',
        "batching_session:wrapped_run_count{}",
        'batching_session:padding_size_sum{execution_batch_size="4"}',
        "batching_session:input_batch_size_count{}",
    ):
        assert 1 == grown[name], name
    assert 3 == grown["batching_session:input_batch_size_sum{}"]
    assert 4 == grown["batching_session:processed_batch_size_sum{}"]
    assert 0 < grown[f'request_latency_sum{{{NAME},API="predict",entrypoint="REST"}}'] < 30e6


def test_a_grpc_call_is_counted_under_its_own_entrypoint(monitored: ServerProcess) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = 'a "name"'
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.float32([1])))

    def call() -> None:
        with grpc.insecure_channel(monitored.target) as channel:
            path = "/tensorflow.serving.PredictionService/Predict"
            channel.unary_unary(path, request_serializer=lambda message: message.SerializeToString())(
                request, timeout=30
            )

    grown = growth(monitored, call)
    assert 1 == grown[f'request_count{{{NAME},status="OK"}}']
    assert 1 == grown[f'request_latency_count{{{NAME},API="Predict",entrypoint="GRPC"}}']


def test_calls_of_the_v2_protocol_are_counted_and_timed(monitored: ServerProcess) -> None:
    x = {"name": "x", "datatype": "FP32", "shape": [1]}

    def over_http() -> None:
        url = f"{monitored.url}/v2/models/a%20%22name%22/infer"
        requests.post(url, json={"inputs": [{**x, "data": [1]}]}, timeout=30).raise_for_status()

    def over_grpc() -> None:
        request = schema.ModelInferRequest(model_name='a "name"', inputs=[{**x, "contents": {"fp32_contents": [1]}}])
        with grpc.insecure_channel(monitored.target) as channel:
            channel.unary_unary(schema.METHODS["ModelInfer"].path)(request.SerializeToString(), timeout=30)

    for call, labels in (
        (over_http, 'API="infer",entrypoint="REST"'),
        (over_grpc, 'API="ModelInfer",entrypoint="GRPC"'),
    ):
        grown = growth(monitored, call)
        assert 1 == grown[f'request_count{{{NAME},status="OK"}}']
        assert 1 == grown[f"request_latency_count{{{NAME},{labels}}}"]


def test_a_call_for_an_unknown_model_is_counted_under_the_empty_name(monitored: ServerProcess) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "unknown"

    def call() -> None:
        with pytest.raises(grpc.RpcError), grpc.insecure_channel(monitored.target) as channel:
            channel.unary_unary("/tensorflow.serving.PredictionService/Predict")(
                request.SerializeToString(), timeout=30
            )

    assert {'request_count{model_name="",status="NOT_FOUND"}': 1} == growth(monitored, call)


def test_a_call_that_is_rejected_unread_is_counted_under_the_empty_name(monitored: ServerProcess) -> None:
    def call() -> None:
        with pytest.raises(grpc.RpcError), grpc.insecure_channel(monitored.target) as channel:
            channel.unary_unary("/tensorflow.serving.PredictionService/Predict")(gzip.compress(bytes(1001)), timeout=30)

    assert {'request_count{model_name="",status="RESOURCE_EXHAUSTED"}': 1} == growth(monitored, call)


@pytest.mark.parametrize(
    ("method", "path", "line"),
    [
        ("POST", "/v1/models/nosuch:predict", 'request_count{model_name="",status="INVALID_ARGUMENT"}'),
        ("GET", "/v1/models/nosuch", 'request_count{model_name="",status="NOT_FOUND"}'),
        ("GET", "/v1/models/a%20%22name%22/versions/9", f'request_count{{{NAME},status="NOT_FOUND"}}'),
        ("POST", "/v2/models/a%20%22name%22/infer", f'request_count{{{NAME},status="INVALID_ARGUMENT"}}'),
        ("GET", "/v2/models/nosuch", 'request_count{model_name="",status="NOT_FOUND"}'),
        ("PUT", "/v1/models/nosuch", 'request_count{model_name="",status="INVALID_ARGUMENT"}'),
    ],
)
def test_failed_requests_are_counted_but_not_timed(monitored: ServerProcess, method: str, path: str, line: str) -> None:
    grown = growth(monitored, lambda: requests.request(method, monitored.url + path, timeout=30))
    assert {line: 1} == grown


def test_requests_outside_the_api_are_not_counted(monitored: ServerProcess) -> None:
    for path in ("/v2/models", "/v2/health/ready", "/v2/models/m/infer"):  # the last one with another method
        assert {} == growth(monitored, lambda path=path: requests.get(monitored.url + path, timeout=30))


def test_the_page_has_the_real_servers_format(monitored: ServerProcess) -> None:
    predict(monitored, instances=[1.0])
    response = requests.get(monitored.url + PATH, timeout=30)
    assert (200, "text/plain") == (response.status_code, response.headers["Content-Type"])
    assert "# TYPE :tensorflow:serving:request_count counter\n" in response.text
    assert "# TYPE :tensorflow:serving:request_example_counts histogram\n# TYPE" in response.text
    theirs, ours = response.text.split("# HELP", 1)  # the real server has no such lines
    assert ":tensorflow:serving:" not in ours
    assert "bakery_" not in theirs
    assert "_created" not in response.text
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    buckets = [
        sample
        for sample in families[":tensorflow:serving:request_latency"].samples
        if sample.name.endswith("_bucket") and sample.labels["API"] == "predict"
    ]
    assert [*LATENCY_BOUNDS, "+Inf"] == [sample.labels["le"] for sample in buckets]
    assert sorted(sample.value for sample in buckets) == [sample.value for sample in buckets]


def test_warm_up_is_timed_under_the_version_folder(monitored: ServerProcess) -> None:
    (name,) = (name for name in samples(monitored) if name.startswith("model_warmup_latency_count"))
    assert name.endswith('/m/1",status="OK"}')
    assert 1 <= samples(monitored)[name]  # another test reloads


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_the_page_is_served_for_any_method(monitored: ServerProcess, method: str) -> None:
    assert 200 == requests.request(method, monitored.url + PATH, timeout=30).status_code


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        (f"{PATH}?x=1", 400, f"Unexpected path: {PATH}?x=1. Should be {PATH}"),
        (PATH.upper(), 404, "<HTML>"),
        ("/monitoring/prometheus/metrics", 404, "<HTML>"),
    ],
)
def test_other_paths_return_no_metrics(monitored: ServerProcess, path: str, status: int, text: str) -> None:
    response = requests.get(monitored.url + path, timeout=30)
    assert status == response.status_code
    assert response.text.startswith(text)


def test_a_reload_returns_the_growth_of_counters(monitored: ServerProcess) -> None:
    base_path = monitored.log.parent / "m"
    request = model_management_pb2.ReloadConfigRequest(
        metric_names=["/tensorflow/serving/model_warmup_records_read", "/x"]
    )
    for name in ('a "name"', "another"):
        request.config.model_config_list.config.add(name=name, base_path=str(base_path), model_platform="tensorflow")
    with grpc.insecure_channel(monitored.target) as channel:
        response = model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest(request, timeout=60)
    expected = {"/tensorflow/serving/model_warmup_records_read": 1, "/x": 0}
    assert expected == {metric.name: metric.int64_value_increase for metric in response.metric}


def test_without_a_config_file_no_metrics_are_served(server: ServerProcess) -> None:
    assert 404 == requests.get(f"{server.url}/monitoring/prometheus/metrics", timeout=30).status_code


def test_an_invalid_config_file_ends_the_start(half_plus_two: Path, tmp_path: Path) -> None:
    config = tmp_path / "monitoring"
    config.write_text("prometheus { }")
    flags = (f"--model_base_path={half_plus_two}", f"--monitoring_config_file={config}")
    server = ServerProcess(*flags, log=tmp_path / "log", wait=False)
    assert 255 == server.process.wait(30)
    assert (
        f"Failed to start server. Error: INVALID_ARGUMENT: Invalid protobuf file: '{config}'\n"
        in (tmp_path / "log").read_text()
    )
