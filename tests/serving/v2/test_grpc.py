"""inference.GRPCInferenceService, on a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import requests
from grpc_calls import NO_LIMIT
from server_process import ServerProcess

from savedmodel_bakery.wire.v2 import grpc as messages
from savedmodel_bakery.wire.v2 import schema

HALF = "half_plus_two"
X = np.array([1, 4], np.float32)


@pytest.fixture(scope="module")
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.target, options=NO_LIMIT) as opened:
        yield opened


def call(channel: grpc.Channel, rpc: str, /, *, metadata: tuple[tuple[str, str], ...] = (), **fields: Any) -> Any:
    method = schema.METHODS[rpc]
    unary = channel.unary_unary(method.path, lambda message: message.SerializeToString(), method.response.FromString)
    return unary(method.request(**fields), metadata=metadata, timeout=30)


def infer(channel: grpc.Channel, inputs: dict[str, np.ndarray], **options: Any) -> Any:
    request_id = options.pop("request_id", "")
    request = messages.encode_request(options.pop("model", HALF), inputs, **options)
    request.message.id = request_id
    content = request.SerializeToString()
    return messages.decode_response(channel.unary_unary(schema.METHODS["ModelInfer"].path)(content, timeout=30))


def test_the_server_and_its_models_are_described(server: ServerProcess, channel: grpc.Channel) -> None:
    assert call(channel, "ServerLive").live
    assert call(channel, "ServerReady").ready
    assert "binary_tensor_data" in call(channel, "ServerMetadata").extensions
    assert [True, True, False, False] == [
        call(channel, "ModelReady", name=name, version=version).ready
        for name, version in ((HALF, ""), (HALF, "1"), (HALF, "2"), ("unknown", ""))
    ]
    index = [(row.name, row.version, row.state) for row in call(channel, "RepositoryIndex").models]
    assert [(HALF, "1", "READY"), (HALF, "3", "READY"), ("tf2", "1", "READY")] == index
    config = call(channel, "ModelConfig", name=HALF, version="1").config
    assert ["x"] == [entry.name for entry in config.input]
    metadata = json.loads(config.parameters["tensorflow_serving_metadata"].string_value)
    assert requests.get(f"{server.url}/v1/models/{HALF}/versions/1/metadata", timeout=30).json() == metadata


def test_a_header_chooses_the_signature_of_the_metadata(channel: grpc.Channel) -> None:
    metadata = call(channel, "ModelMetadata", name=HALF)
    [x] = metadata.inputs
    assert ("x", "FP32", [-1], ["1", "3"]) == (x.name, x.datatype, x.shape, metadata.versions)
    two = call(channel, "ModelMetadata", name=HALF, metadata=(("signature-name", "tw%6F"),))
    assert ["a", "b"] == [entry.name for entry in two.inputs]


def test_inference(channel: grpc.Channel) -> None:
    response = infer(channel, {"x": X}, request_id="seven")
    assert (HALF, "3", "seven") == (response.model_name, response.model_version, response.request_id)
    assert [3.5, 5] == response.outputs["y"].array.tolist()
    assert [2.5, 4] == infer(channel, {"x": X}, version=1).outputs["y"].array.tolist()
    response = infer(channel, {"a": X, "b": X}, signature_name="two", outputs=["sum"])
    assert ({"sum"}, [2, 8]) == (set(response.outputs), response.outputs["sum"].array.tolist())
    strings = np.array([b"\xff", b""], object)
    response = infer(channel, {"s": strings}, signature_name="text")
    assert strings.tolist() == response.outputs["t"].array.tolist()


def test_large_tensors_and_typed_contents(channel: grpc.Channel) -> None:
    large = np.arange(3_000_000, dtype=np.float32)
    np.testing.assert_array_equal(large / 2 + 3, infer(channel, {"x": large}).outputs["y"].array)
    entry = {"name": "x", "datatype": "FP32", "shape": [2], "contents": {"fp32_contents": X.tolist()}}
    response = call(channel, "ModelInfer", model_name=HALF, inputs=[entry])
    assert [np.array([3.5, 5], np.float32).tobytes()] == response.raw_output_contents


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ({"model": "unknown"}, "NOT_FOUND", "Latest(unknown)"),
        ({"version": 2}, "NOT_FOUND", "Specific(half_plus_two, 2)"),
        ({"signature_name": "z"}, "INVALID_ARGUMENT", 'signature "z" not found'),
        ({"outputs": ["z"]}, "INVALID_ARGUMENT", 'output "z" is not an output of'),
        ({"model": ""}, "INVALID_ARGUMENT", "no name"),
    ],
)
def test_errors(channel: grpc.Channel, options: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(grpc.RpcError) as error:
        infer(channel, {"x": X}, **options)
    assert (code, True) == (error.value.code().name, text in error.value.details()), error.value.details()


def test_a_run_ends_at_its_deadline_and_with_its_caller(server: ServerProcess, channel: grpc.Channel) -> None:
    steps = np.int32(server.slow_steps(HALF, 0.3) * 300)
    content = messages.encode_request(HALF, {"n": steps}, signature_name="slow").SerializeToString()
    run = channel.unary_unary(schema.METHODS["ModelInfer"].path)
    with pytest.raises(grpc.RpcError) as error:
        run(content, timeout=0.5)
    assert "DEADLINE_EXCEEDED" == error.value.code().name
    server.wait_until_idle()
    running = run.future(content)
    server.wait_until_busy()
    running.cancel()
    server.wait_until_idle()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("RepositoryModelLoad", "HandleReloadConfigRequest"),
        ("RepositoryModelUnload", "HandleReloadConfigRequest"),
        ("ModelStreamInfer", "use ModelInfer"),
        ("ModelStatistics", "statistics"),
        ("SystemSharedMemoryStatus", "shared memory"),
        ("TraceSetting", "trace"),
    ],
)
def test_other_calls_are_unimplemented(channel: grpc.Channel, name: str, text: str) -> None:
    with pytest.raises(grpc.RpcError) as error:
        call(channel, name)
    assert "UNIMPLEMENTED" == error.value.code().name
    assert text in error.value.details()
