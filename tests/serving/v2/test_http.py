"""The v2 protocol over HTTP, on a real server."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import numpy as np
import pytest
import requests
from server_process import ServerProcess

from savedmodel_bakery.wire.v2 import http_decode, http_encode

MODEL = "/v2/models/half_plus_two"
WHERE = 'signature "serving_default" of model "half_plus_two" version 3'
X = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 4]}


def infer(server: ServerProcess, path: str = MODEL, inputs: tuple[Any, ...] = (X,), **members: Any) -> Any:
    response = requests.post(f"{server.url}{path}/infer", json={"inputs": inputs, **members}, timeout=30)
    assert "application/json" == response.headers["Content-Type"]
    return response.status_code, response.json()


def get(server: ServerProcess, path: str) -> Any:
    response = requests.get(server.url + path, timeout=30)
    return response.status_code, response.json()


def test_the_server_describes_itself(server: ServerProcess) -> None:
    status, body = get(server, "/v2")
    assert (200, "savedmodel-bakery") == (status, body["name"])
    assert {"binary_tensor_data", "model_repository"} <= set(body["extensions"])
    assert (200, {"live": True}) == get(server, "/v2/health/live")
    assert (200, {"ready": True}) == get(server, "/v2/health/ready")


def test_metadata_describes_one_signature_and_names_all(server: ServerProcess) -> None:
    status, body = get(server, MODEL)
    assert 200 == status
    assert {
        "name": "half_plus_two",
        "versions": ["1", "3"],
        "platform": "tensorflow_savedmodel",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
        "parameters": {
            "signature_names": ["classify", "none", "regress", "serving_default", "slow", "text", "two"],
        },
    } == body
    assert body == get(server, f"{MODEL}/versions/1")[1]
    two = get(server, f"{MODEL}/versions/3?signature_name=tw%6F")[1]
    assert ["a", "b"] == [entry["name"] for entry in two["inputs"]]
    slow = get(server, f"{MODEL}?signature_name=slow")[1]
    assert [{"name": "n", "datatype": "INT32", "shape": []}] == slow["inputs"]


def test_the_configuration_has_all_signatures_as_tensorflow_serving_describes_them(server: ServerProcess) -> None:
    status, body = get(server, f"{MODEL}/versions/1/config")
    assert 200 == status
    assert [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}] == body["input"]
    metadata = body["parameters"]["tensorflow_serving_metadata"]["string_value"]
    assert get(server, "/v1/models/half_plus_two/versions/1/metadata")[1] == json.loads(metadata)


def test_the_index_lists_every_version(server: ServerProcess) -> None:
    for body in (b"", b'{"ready": true}'):
        response = requests.post(f"{server.url}/v2/repository/index", data=body, timeout=30)
        rows = [(row["name"], row["version"], row["state"], row["reason"]) for row in response.json()]
        versions = [("half_plus_two", "1"), ("half_plus_two", "3"), ("tf2", "1")]
        assert [(*version, "READY", "") for version in versions] == rows


def test_a_request_runs_the_newest_version_or_the_one_of_the_url(server: ServerProcess) -> None:
    y = {"name": "y", "datatype": "FP32", "shape": [2], "data": [3.5, 5.0]}
    expected = {"model_name": "half_plus_two", "model_version": "3", "id": "seven", "outputs": [y]}
    assert (200, expected) == infer(server, id="seven")
    status, first = infer(server, f"{MODEL}/versions/01")
    assert (200, "1", [2.5, 4.0]) == (status, first["model_version"], first["outputs"][0]["data"])
    assert "id" not in first


def test_the_parameter_chooses_the_signature_and_outputs_are_chosen_by_name(server: ServerProcess) -> None:
    inputs = tuple({**X, "name": name} for name in "ab")
    two = {"parameters": {"signature_name": "two", "timeout": 5, "sequence_id": 1}}
    body = infer(server, inputs=inputs, **two)[1]
    assert {"diff": [0.0, 0.0], "sum": [2.0, 8.0]} == {output["name"]: output["data"] for output in body["outputs"]}
    body = infer(server, inputs=inputs, outputs=[{"name": "sum"}], **two)[1]
    assert ["sum"] == [output["name"] for output in body["outputs"]]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
def test_binary_data_may_be_compressed(server: ServerProcess, encoding: str) -> None:
    body = http_encode.encode_request({"x": np.array([1, 4], np.float32)})
    compress = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}[encoding]
    headers = {http_encode.HEADER_LENGTH: str(body.header_length), "Content-Encoding": encoding}
    response = requests.post(f"{server.url}{MODEL}/infer", data=compress(body.content), headers=headers, timeout=30)
    assert "application/octet-stream" == response.headers["Content-Type"]
    received = http_decode.decode_response(response.content, response.headers[http_encode.HEADER_LENGTH])
    assert [3.5, 5.0] == received.outputs["y"].array.tolist()


def test_strings_are_bytes(server: ServerProcess) -> None:
    inputs = ({"name": "s", "datatype": "BYTES", "shape": [1], "data": ["é"]},)
    body = infer(server, inputs=inputs, parameters={"signature_name": "text"})[1]
    assert {"t": ["é"], "t_bytes": ["é"]} == {output["name"]: output["data"] for output in body["outputs"]}


ERRORS: dict[str, tuple[dict[str, Any], int, str]] = {
    "unknown model": ({"path": "/v2/models/m"}, 404, "Servable not found for request: Latest(m)"),
    "unknown version": (
        {"path": f"{MODEL}/versions/2"},
        404,
        "Servable not found for request: Specific(half_plus_two, 2)",
    ),
    "no version": (
        {"path": f"{MODEL}/versions/-1"},
        400,
        'invalid version "-1": must be a number between 0 and 9223372036854775807',
    ),
    "unknown signature": (
        {"parameters": {"signature_name": "z"}},
        400,
        'signature "z" not found in model "half_plus_two" version 3; it has "classify", "none", "regress", '
        '"serving_default", "slow", "text", "two"',
    ),
    "unknown input": (
        {"inputs": ({**X, "name": "z"},)},
        400,
        f'input "z" is not an input of {WHERE}; its inputs are "x"',
    ),
    "repeated input": ({"inputs": (X, X)}, 400, 'input "x" is repeated'),
    "missing input": ({"inputs": ()}, 400, f'{WHERE} needs the inputs "x", which the request does not have'),
    "another datatype": (
        {"inputs": ({**X, "datatype": "INT32"},)},
        400,
        f'input "x" is INT32; must be FP32 for {WHERE}',
    ),
    "few values": (
        {"inputs": ({**X, "shape": [3]},)},
        400,
        'input "x" has data of shape [2]; its shape is [3], so data must be nested like that, or a flat list of 3 '
        "values",
    ),
    "unknown output": (
        {"outputs": [{"name": "z"}]},
        400,
        f'output "z" is not an output of {WHERE}; its outputs are "y"',
    ),
    "repeated output": ({"outputs": [{"name": "y"}] * 2}, 400, 'output "y" is requested twice'),
    "shared memory": (
        {"inputs": ({"name": "x", "parameters": {"shared_memory_region": "r"}},)},
        501,
        'input "x" is in shared memory, which is not supported: send its values in the message',
    ),
}


@pytest.mark.parametrize(("request_", "status", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_name_what_is_wrong(server: ServerProcess, request_: dict[str, Any], status: int, message: str) -> None:
    assert (status, {"error": message}) == infer(server, **request_)


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", f"{MODEL}/infer", 405, "must be POST"),
        ("POST", MODEL, 405, "must be GET"),
        ("GET", "/v2/models/unknown/ready", 404, "Servable not found"),
        ("GET", "/v2/models/%ff/ready", 404, "Latest(\ufffd)"),
        ("GET", f"{MODEL}?signature_name=z", 400, 'signature "z" not found'),
        ("POST", "/v2/repository/models/m/load", 501, "HandleReloadConfigRequest"),
        ("POST", "/v2/repository/models/m/unload", 501, "HandleReloadConfigRequest"),
        ("GET", f"{MODEL}/stats", 501, "statistics"),
        ("POST", f"{MODEL}/generate_stream", 501, "use infer"),
        ("GET", "/v2/systemsharedmemory/status", 501, "shared memory"),
        ("GET", f"{MODEL}/versions/1/trace/setting", 501, "trace"),
    ],
)
def test_other_calls_are_errors(server: ServerProcess, method: str, path: str, status: int, text: str) -> None:
    response = requests.request(method, server.url + path, timeout=30)
    assert status == response.status_code
    assert text in response.json()["error"]


def test_a_browser_may_ask_what_it_may_send(server: ServerProcess) -> None:
    headers = {"Origin": "https://shop.example"}
    response = requests.options(f"{server.url}{MODEL}/infer", headers=headers, timeout=30)
    assert (200, b"") == (response.status_code, response.content)


@pytest.mark.parametrize(
    ("body", "headers", "text"),
    [
        (b"{", {}, "JSON Parse error"),
        (b"[]", {}, "must be a JSON object"),
        (b"x", {"Content-Encoding": "gzip"}, "the body is not valid gzip"),
        (b"x", {"Content-Encoding": "br"}, 'unknown Content-Encoding "br": must be gzip or deflate'),
        (b"{}", {http_encode.HEADER_LENGTH: "3"}, "the header Inference-Header-Content-Length is"),
    ],
)
def test_bodies_that_are_no_request_are_errors(
    server: ServerProcess, body: bytes, headers: dict[str, str], text: str
) -> None:
    response = requests.post(f"{server.url}{MODEL}/infer", data=body, headers=headers, timeout=30)
    assert 400 == response.status_code
    assert text in response.json()["error"]
