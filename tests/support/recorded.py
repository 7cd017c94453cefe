"""Replays recorded requests and compares the responses with those of the real server."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import socket
import time
from typing import Any

import grpc
from google.protobuf import json_format
from server_process import ServerProcess
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    predict_pb2,
    regression_pb2,
)

Case = dict[str, Any]
Outcome = dict[str, Any]

METHODS = {
    "Predict": ("PredictionService", predict_pb2.PredictRequest, predict_pb2.PredictResponse),
    "Classify": (
        "PredictionService",
        classification_pb2.ClassificationRequest,
        classification_pb2.ClassificationResponse,
    ),
    "Regress": ("PredictionService", regression_pb2.RegressionRequest, regression_pb2.RegressionResponse),
    "MultiInference": ("PredictionService", inference_pb2.MultiInferenceRequest, inference_pb2.MultiInferenceResponse),
    "GetModelMetadata": (
        "PredictionService",
        get_model_metadata_pb2.GetModelMetadataRequest,
        get_model_metadata_pb2.GetModelMetadataResponse,
    ),
    "GetModelStatus": (
        "ModelService",
        get_model_status_pb2.GetModelStatusRequest,
        get_model_status_pb2.GetModelStatusResponse,
    ),
    "HandleReloadConfigRequest": (
        "ModelService",
        model_management_pb2.ReloadConfigRequest,
        model_management_pb2.ReloadConfigResponse,
    ),
}
_HEADERS = ("content-type", "access-control-allow-", "allow", "content-encoding")


def send_grpc(channel: grpc.Channel, case: Case, models: str) -> Outcome:
    """Make the call of a case; `{MODELS}` stands for the models' folder in the request and the response."""
    service, request_class, response_class = METHODS.get(case["method"], ("PredictionService", None, None))
    if "request_base64" in case:
        data = base64.b64decode(case["request_base64"])
    else:
        request = json.dumps(case["request"]).replace("{MODELS}", models)
        data = json_format.Parse(request, request_class()).SerializeToString()
    time.sleep(case.get("wait_before", 0))
    try:
        encoded = channel.unary_unary(f"/tensorflow.serving.{service}/{case['method']}")(
            data, timeout=case.get("timeout", 30)
        )
    except grpc.RpcError as error:
        return {"code": error.code().name, "message": (error.details() or "").replace(models, "{MODELS}")}
    finally:
        time.sleep(case.get("wait", 0))
    response = json.loads(json_format.MessageToJson(response_class.FromString(encoded)).replace(models, "{MODELS}"))
    response.get("metric", []).sort(key=lambda metric: metric["name"])  # in no fixed order
    return {"code": "OK", "response": response}


def send_rest(server: ServerProcess, case: Case) -> Outcome:
    """Send the request of a case, byte for byte."""
    body = base64.b64decode(case["body_base64"]) if "body_base64" in case else (case["body"] or "").encode()
    if case.get("gzip"):
        body = gzip.compress(body)
    lines = [f"{case['method']} {case['path']} HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in case["headers"].items()]
    if (case.get("body") is not None or "body_base64" in case) and not case.get("raw_length"):
        lines.append(f"Content-Length: {len(body)}")
    received = b""
    with socket.create_connection(("127.0.0.1", server.rest_api_port), 60) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        while piece := connection.recv(65536):
            received += piece
    head, _, content = received.partition(b"\r\n\r\n")
    status, *rows = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (row.partition(":") for row in rows)}
    kept = {name: value for name, value in headers.items() if name.startswith(_HEADERS)}
    return {"status": int(status.split()[1]), "headers": kept, "body": _body(content)}


def difference(case: Case, actual: Outcome) -> str | None:
    """Describe how an outcome differs from the recorded one; None if it is equivalent.

    Where the real server has a fault, any outcome is accepted except an internal error or one without a message.
    """
    expected = case["outcome"]
    if case.get("upstream_fault"):
        is_fault = actual.get("code") == "INTERNAL" or actual.get("status", 0) >= 500
        is_silent = actual.get("message") == "" or actual.get("body") == {"text": ""}
        return f"expected a response or a clear error, not {actual}" if is_fault or is_silent else None
    if "crash" in expected:
        is_error = actual.get("code", "OK") != "OK" or actual.get("status", 0) >= 400
        return None if is_error else f"expected an error, as the real server crashed, not {actual}"
    for key in ("code", "status", "headers"):
        if expected.get(key) != actual.get(key):
            return f"{key}: expected {expected.get(key)}, not {actual.get(key)}"
    texts = case.get("alternatives", [])
    if "code" in expected:
        if expected["code"] == "OK":
            is_same = _is_equal(expected["response"], actual["response"])
        else:  # the client library writes the message of an exceeded deadline
            is_same = expected["code"] == "DEADLINE_EXCEEDED" or _matches_any(
                actual["message"], [expected["message"], *texts]
            )
    else:
        is_same = _is_same_body(expected["body"], actual["body"], texts)
    return None if is_same else f"expected {expected}, not {actual}"


def _body(content: bytes) -> dict[str, str]:
    """Return the body in the recording's form: JSON, other text, or base64 of other bytes."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
    try:
        json.loads(text)
    except ValueError:
        return {"text": text}
    return {"json": text}


def _is_same_body(expected: dict[str, str], actual: dict[str, str], texts: list[str]) -> bool:
    if expected.keys() != actual.keys():
        return False
    if "json" not in expected:
        return expected == actual
    left, right = json.loads(expected["json"]), json.loads(actual["json"])
    if isinstance(left, dict) and isinstance(right, dict) and "error" in left and "error" in right:
        return _matches_any(right["error"], [left["error"], *texts])
    return _is_equal(left, right)


def _matches_any(message: str, texts: list[str]) -> bool:
    return any(_same_text(message, text) for text in texts)


def _same_text(left: str, right: str) -> bool:
    """Return whether messages are equal, ignoring the marker that newer protobufs put before printed messages."""
    left, right = (re.sub(r"goo\.gle/debug\w+\s*", "", text) for text in (left, right))
    mark = "...TRUNCATED"
    if left.endswith(mark) and right.endswith(mark):  # the marker shifts where the text is truncated
        left, right = left.removesuffix(mark), right.removesuffix(mark)
        return left.startswith(right) or right.startswith(left)
    return left == right


def _is_equal(left: object, right: object) -> bool:
    """Return whether two JSON values are equal; floats are compared with six digits."""
    x, y = _number(left), _number(right)
    if x is not None and y is not None:
        if math.isnan(x) or math.isnan(y):
            return math.isnan(x) and math.isnan(y)
        if x == 0 and y == 0:
            return math.copysign(1, x) == math.copysign(1, y)
        return math.isclose(x, y, rel_tol=2e-6, abs_tol=1e-37)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_is_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_equal, left, right))
    return type(left) is type(right) and left == right


def _number(value: object) -> float | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
        return None  # compared exactly
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    named = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    return named.get(value) if isinstance(value, str) else None
