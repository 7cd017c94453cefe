"""The access log of a real server, and how its lines are written."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import grpc
import grpc_calls
import numpy as np
import pytest
import requests
from server_process import ServerProcess
from tensorflow_serving.apis import prediction_service_pb2_grpc
from waiting import wait_until

from savedmodel_bakery.serving.access.tokens import Role, Token, format_token, hash_secret
from savedmodel_bakery.serving.telemetry.requests import AccessLog, Requests, report_exception

MODEL = "half_plus_two"
SECRET = "shop-secret"
AUTHORIZATION = ("authorization", f"Bearer {SECRET}")
PREDICT = "/tensorflow.serving.PredictionService/Predict"
VALUE = 31337.25
V2_INPUT = {"name": "x", "shape": [1], "datatype": "FP32", "data": [VALUE]}


@pytest.fixture(scope="module")
def server(half_plus_two: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a token, which logs requests as JSON."""
    root = tmp_path_factory.mktemp("access_log")
    tokens = root / "tokens.toml"
    tokens.write_text(format_token(Token("shop", hash_secret(SECRET), frozenset({Role.PREDICT}), None)))
    flags = (f"--model_name={MODEL}", f"--model_base_path={half_plus_two}", f"--auth_tokens_file={tokens}")
    flags += ("--access_log", "--access_log_json", "--body_timeout_seconds=1")
    with ServerProcess(*flags, log=root / "log") as running:
        yield running


def entry(server: ServerProcess, request_id: str) -> dict[str, Any]:
    """Return the entry of a request."""
    found: list[dict[str, Any]] = []

    def is_logged() -> bool:
        lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
        found[:] = [line for line in lines if line["request_id"] == request_id]
        return bool(found)

    wait_until(is_logged, describe=lambda: f"{request_id} is not in the log:\n{server.log.read_text()}")
    (one,) = found
    assert 0 < one.pop("duration_ms") < 60_000
    assert one.pop("time").endswith("+00:00")
    assert one.pop("peer")
    return one


@pytest.mark.parametrize(
    ("path", "body", "model_version"),
    [
        (f"/v1/models/{MODEL}:predict", {"instances": [VALUE]}, 1),
        (f"/v2/models/{MODEL}/infer", {"inputs": [V2_INPUT]}, 1),
        (f"/v1/models/{MODEL}:predict", {"instances": ["text"]}, None),
        ("/v1/models/nobody:predict", {"instances": [VALUE]}, None),
    ],
    ids=["predict", "v2", "wrong input", "unknown model"],
)
def test_http_requests(server: ServerProcess, path: str, body: object, model_version: int | None) -> None:
    response = requests.post(f"{server.url}{path}", json=body, headers=dict([AUTHORIZATION]), timeout=60)
    version = {"model_version": model_version} if model_version else {}
    assert {
        "request_id": response.headers["x-request-id"],
        "entrypoint": "REST",
        "call": f"POST {path}",
        "status": str(response.status_code),
        "received_bytes": int(response.request.headers["Content-Length"]),
        "sent_bytes": len(response.content),
        "model_name": path.split("/")[3].partition(":")[0],
        "token_name": "shop",
        **version,
    } == entry(server, response.headers["x-request-id"])


def test_rejected_http_requests(server: ServerProcess) -> None:
    for path, headers, status in (
        (f"/v1/models/{MODEL}", {"X-Request-Id": "no-token"}, 401),
        (f"/v1/models/{MODEL}", {"X-Request-Id": "no-model", **dict([AUTHORIZATION])}, 404),  # its name has the query
        ("/nothing", {"X-Request-Id": "no-page", **dict([AUTHORIZATION])}, 404),
    ):
        response = requests.get(f"{server.url}{path}?key=hidden", headers=headers, timeout=60)
        assert (status, headers["X-Request-Id"]) == (response.status_code, response.headers["x-request-id"])
        logged = entry(server, headers["X-Request-Id"])
        assert (f"GET {path}", str(status)) == (logged["call"], logged["status"])
        assert (MODEL if MODEL in path else None) == logged.get("model_name")


def test_a_body_that_takes_too_long(server: ServerProcess) -> None:
    path = f"/v1/models/{MODEL}:predict"
    headers = f"Content-Length: 18\r\nX-Request-Id: slow\r\nAuthorization: {AUTHORIZATION[1]}"
    with socket.create_connection(("127.0.0.1", server.rest_api_port), 30) as connection:
        connection.sendall(f'POST {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n{{"inst'.encode())
        response = HTTPResponse(connection)
        response.begin()
        content = response.read()
    assert b"--body_timeout_seconds" in content
    assert (429, "slow", "close") == (response.status, response.headers["x-request-id"], response.headers["connection"])
    assert {
        "request_id": "slow",
        "entrypoint": "REST",
        "call": f"POST {path}",
        "status": "429",
        "received_bytes": 0,
        "sent_bytes": len(content),
        "model_name": MODEL,
        "token_name": "shop",
    } == entry(server, "slow")


def test_a_caller_that_goes_before_its_body_has_arrived(server: ServerProcess) -> None:
    headers = f"Content-Length: 18\r\nX-Request-Id: gone\r\nAuthorization: {AUTHORIZATION[1]}"
    with socket.create_connection(("127.0.0.1", server.rest_api_port), 30) as connection:
        connection.sendall(f"POST /v1/models/{MODEL}:predict HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n".encode())
    assert "499" == entry(server, "gone")["status"]


def test_a_long_name_of_a_model_is_cut(server: ServerProcess) -> None:
    message = grpc_calls.request(x=np.float32([VALUE]))
    message.model_spec.name = "m" * 1_000_000
    with grpc.insecure_channel(server.target) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        with pytest.raises(grpc.RpcError):
            stub.Predict(message, timeout=60, metadata=(AUTHORIZATION, ("x-request-id", "long-name")))
    assert "m" * 256 == entry(server, "long-name")["model_name"]


def test_grpc_calls(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.target) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        message = grpc_calls.request(x=np.float32([VALUE]))
        metadata = (AUTHORIZATION, ("x-request-id", "order-17"))
        response, call = stub.Predict.with_call(message, timeout=60, metadata=metadata)
        assert "order-17" == dict(call.trailing_metadata())["x-request-id"]
        with pytest.raises(grpc.RpcError) as rejected:
            stub.Predict(message, timeout=60, metadata=(("x-request-id", "order-18"),))
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/no.Service/Call")(b"", metadata=(AUTHORIZATION, ("x-request-id", "order-19")))
    assert {
        "request_id": "order-17",
        "entrypoint": "GRPC",
        "call": PREDICT,
        "status": "OK",
        "received_bytes": message.ByteSize(),
        "sent_bytes": response.ByteSize(),
        "model_name": MODEL,
        "model_version": 1,
        "token_name": "shop",
    } == entry(server, "order-17")
    assert "order-18" == dict(rejected.value.trailing_metadata())["x-request-id"]
    assert "UNAUTHENTICATED" == entry(server, "order-18")["status"]
    assert ("UNIMPLEMENTED", "/no.Service/Call") == tuple(entry(server, "order-19")[key] for key in ("status", "call"))


@pytest.mark.parametrize("request_id", ["", "two words", "x" * 129, "ä", 'a"b'])
def test_a_strange_id_is_replaced(server: ServerProcess, request_id: str) -> None:
    headers = [AUTHORIZATION, ("x-request-id", request_id.encode())]
    response = requests.get(f"{server.url}/v1/models/{MODEL}", headers=dict(headers), timeout=60)
    assert 32 == len(response.headers["x-request-id"])
    assert "200" == entry(server, response.headers["x-request-id"])["status"]


def test_neither_payloads_nor_tokens_are_logged(server: ServerProcess) -> None:
    for query, status in (("", 200), ("?key=hidden", 400)):
        url = f"{server.url}/v1/models/{MODEL}:predict{query}"
        response = requests.post(url, json={"instances": [VALUE]}, headers=dict([AUTHORIZATION]), timeout=60)
        assert status == response.status_code
        assert "shop" == entry(server, response.headers["x-request-id"])["token_name"]
    text = server.log.read_text()
    assert not [hidden for hidden in (SECRET, "hidden", str(VALUE)) if hidden in text]


def test_a_caller_can_not_forge_a_line_or_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    entry = Requests(AccessLog(as_json=False)).begin_http("GET", '/a\nb" status=200 \x1b[31m', "127.0.0.1:1", {})
    entry.end("404", 0)
    (line,) = capsys.readouterr().out.splitlines()
    assert r'call="GET /a\nb\" status=200 \u001b[31m" status=404 ' in line


def test_an_incident_has_the_id_of_its_request(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        error = report_exception(logging.getLogger(), "a call", "order-17")
    assert "order-17" in error.message
    assert "order-17" in caplog.text
