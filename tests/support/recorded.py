"""Recorded cases: send what was sent to the real server, and say how an answer differs from what it gave."""

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
    """Make the call of a case; `{MODELS}` stands for the folder of models, both ways."""
    service, request_class, response_class = METHODS.get(case["method"], ("PredictionService", None, None))
    if "request_base64" in case:
        data = base64.b64decode(case["request_base64"])
    else:
        filled_in = json.dumps(case["request"]).replace("{MODELS}", models)
        data = json_format.Parse(filled_in, request_class()).SerializeToString()
    time.sleep(case.get("wait_before", 0))
    try:
        answer = channel.unary_unary(f"/tensorflow.serving.{service}/{case['method']}")(
            data, timeout=case.get("timeout", 30)
        )
    except grpc.RpcError as error:
        return {"code": error.code().name, "message": (error.details() or "").replace(models, "{MODELS}")}
    finally:
        time.sleep(case.get("wait", 0))
    response = json.loads(json_format.MessageToJson(response_class.FromString(answer)).replace(models, "{MODELS}"))
    response.get("metric", []).sort(key=lambda metric: metric["name"])  # whose order isn't fixed
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


def difference(case: Case, got: Outcome) -> str | None:
    """How an answer differs from the recorded one; None where it is as good.

    Where the real server is at fault, anything is as good but a fault of our own, or an error without a text.
    """
    wanted = case["outcome"]
    if case.get("upstream_fault"):
        is_fault = got.get("code") == "INTERNAL" or got.get("status", 0) >= 500
        is_silent = got.get("message") == "" or got.get("body") == {"text": ""}
        return f"an answer or a clear refusal is wanted; got {got}" if is_fault or is_silent else None
    if "crash" in wanted:
        is_error = got.get("code", "OK") != "OK" or got.get("status", 0) >= 400
        return None if is_error else f"an error is wanted, as the real server crashed; got {got}"
    for key in ("code", "status", "headers"):
        if wanted.get(key) != got.get(key):
            return f"{key}: wanted {wanted.get(key)}, got {got}"
    texts = case.get("alternatives", [])
    if "code" in wanted:
        if wanted["code"] == "OK":
            is_same = _alike(wanted["response"], got["response"])
        else:  # of a deadline the client's own library tells
            is_same = wanted["code"] == "DEADLINE_EXCEEDED" or _is_among(got["message"], [wanted["message"], *texts])
    else:
        is_same = _is_same_body(wanted["body"], got["body"], texts)
    return None if is_same else f"wanted {wanted}, got {got}"


def _body(content: bytes) -> dict[str, str]:
    """The body as the recording has it: JSON, other text, or base64 of what is neither."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
    try:
        json.loads(text)
    except ValueError:
        return {"text": text}
    return {"json": text}


def _is_same_body(wanted: dict[str, str], got: dict[str, str], texts: list[str]) -> bool:
    if wanted.keys() != got.keys():
        return False
    if "json" not in wanted:
        return wanted == got
    left, right = json.loads(wanted["json"]), json.loads(got["json"])
    if isinstance(left, dict) and isinstance(right, dict) and "error" in left and "error" in right:
        return _is_among(right["error"], [left["error"], *texts])
    return _alike(left, right)


def _is_among(message: str, texts: list[str]) -> bool:
    return any(_same_text(message, text) for text in texts)


def _same_text(left: str, right: str) -> bool:
    """Whether messages are the same, but for a mark that newer protobufs put before what they print."""
    left, right = (re.sub(r"goo\.gle/debug\w+\s*", "", text) for text in (left, right))
    mark = "...TRUNCATED"
    if left.endswith(mark) and right.endswith(mark):  # the mark before it moves the place of the cut
        left, right = left.removesuffix(mark), right.removesuffix(mark)
        return left.startswith(right) or right.startswith(left)
    return left == right


def _alike(left: object, right: object) -> bool:
    """Whether two JSON values are the same, floats within the precision of six digits."""
    x, y = _number(left), _number(right)
    if x is not None and y is not None:
        if math.isnan(x) or math.isnan(y):
            return math.isnan(x) and math.isnan(y)
        if x == 0 and y == 0:
            return math.copysign(1, x) == math.copysign(1, y)
        return math.isclose(x, y, rel_tol=2e-6, abs_tol=1e-37)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_alike(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_alike, left, right))
    return type(left) is type(right) and left == right


def _number(value: object) -> float | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
        return None  # compared exactly
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    named = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    return named.get(value) if isinstance(value, str) else None
