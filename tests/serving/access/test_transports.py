"""What each caller may do over gRPC and REST, for every RPC and every path."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import model_makers
import pytest
import requests
import trustme
from server_process import ServerProcess
from waiting import wait_until

from savedmodel_bakery.serving.access.tokens import Role, Token, format_token, hash_secret
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.v2.schema import METHODS as V2_METHODS

MODEL = "half_plus_two"
METRICS_PATH = "/monitoring/prometheus/metrics"
SECRETS = {
    name: f"secret-of-{name}" for name in ("wrong", "revoked", "other", "right", "admin", "metrics", "slow", "rows")
}
CALLERS = (None, "wrong", "revoked", "other", "right", "admin", "metrics")
PREDICT = frozenset({Role.PREDICT})


def token(name: str, roles: frozenset[Role] = PREDICT, models: tuple[str, ...] = (), **limits: float) -> Token:
    return Token(name, hash_secret(SECRETS[name]), roles, frozenset(models), **limits)


REVOKED = token("revoked", models=(MODEL,))
TOKENS = (
    token("other", models=("another", "missing")),
    token("right", models=(MODEL,)),
    token("admin", frozenset({Role.ADMIN})),
    token("metrics", frozenset({Role.METRICS})),
    token("slow", models=(MODEL,), requests_per_second=0.001),
    token("rows", models=(MODEL,), rows_per_second=0.001),
)


class Served(NamedTuple):
    """A server whose callers need tokens, with TLS for REST."""

    server: ServerProcess
    channel: grpc.Channel
    session: requests.Session
    log: Path

    def rpc(self, path: str, caller: str | None, message: bytes = b"") -> tuple[str, str]:
        """Make a call; return the status code and the text."""
        metadata = (("authorization", f"Bearer {SECRETS[caller]}"),) if caller else ()
        try:
            self.channel.unary_unary(path)(message, metadata=metadata, timeout=30)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        return "OK", ""

    def rest(self, method: str, path: str, caller: str | None, **options: object) -> requests.Response:
        """Send a request."""
        headers = {"Authorization": f"Bearer {SECRETS[caller]}"} if caller else {}
        url = f"https://localhost:{self.server.rest_api_port}{path}"
        return self.session.request(method, url, headers=headers, timeout=30, **options)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("access")
    model_makers.half_plus(root / MODEL, 1)
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(root / "ca.pem")
    tls = schema.SSLConfig(
        server_key=certificate.private_key_pem.bytes().decode(),
        server_cert=certificate.cert_chain_pems[0].bytes().decode(),
    )
    tokens = root / "tokens.toml"
    for name, content in {
        "tls": str(tls),
        "monitoring": "prometheus_config { enable: true }",
        "tokens.toml": "\n".join(map(format_token, (*TOKENS, REVOKED))),
    }.items():
        (root / name).write_text(content)
    flags = (
        f"--model_name={MODEL}",
        f"--model_base_path={root / MODEL}",
        f"--auth_tokens_file={tokens}",
        f"--rest_ssl_config_file={root / 'tls'}",
        f"--monitoring_config_file={root / 'monitoring'}",
        "--enable_grpc_healthcheck_service",
        "--enable_playground",
        "--health_route=/ping",
        "--predict_route=/invocations",
    )
    log = root / "log"
    with ServerProcess(*flags, log=log) as running, requests.Session() as session:
        session.trust_env = False  # environment variables would replace the authority
        session.verify = str(root / "ca.pem")
        with grpc.insecure_channel(running.target) as channel:
            served = Served(running, channel, session, log)
            path, message = METHODS["GetModelStatus"].path, named("GetModelStatus")
            assert "OK" == served.rpc(path, "revoked", message)[0]
            tokens.write_text("\n".join(map(format_token, TOKENS)))
            wait_until(lambda: served.rpc(path, "revoked", message)[0] == "UNAUTHENTICATED")
            yield served
    assert not [name for name, secret in SECRETS.items() if secret in log.read_text()]


def named(method: str, model: str = MODEL) -> bytes:
    """Return a request of a method that contains only a model's name."""
    request = METHODS[method].request()
    if method == "MultiInference":
        request.tasks.add().model_spec.name = model
    elif method != "HandleReloadConfigRequest":
        request.model_spec.name = model
    return bytes(request.SerializeToString())


DENIED = {None: "UNAUTHENTICATED", "wrong": "UNAUTHENTICATED", "revoked": "UNAUTHENTICATED"}
PREDICTS = {**DENIED, **dict.fromkeys(("other", "admin", "metrics"), "PERMISSION_DENIED")}
ADMINS = {**DENIED, **dict.fromkeys(("other", "right", "metrics"), "PERMISSION_DENIED")}
RPCS = {
    # A request without inputs is invalid, but it is permitted.
    "Predict": PREDICTS | {"right": "INVALID_ARGUMENT"},
    "Classify": PREDICTS | {"right": "INVALID_ARGUMENT"},
    "Regress": PREDICTS | {"right": "INVALID_ARGUMENT"},
    "MultiInference": PREDICTS | {"right": "UNIMPLEMENTED"},  # for a task without a method
    "GetModelMetadata": PREDICTS | {"right": "INVALID_ARGUMENT"},
    "GetModelStatus": PREDICTS | {"right": "OK"},
    "HandleReloadConfigRequest": ADMINS | {"admin": "INVALID_ARGUMENT"},
    "/tensorflow.ProfilerService/Profile": ADMINS | {"admin": "OK"},
    "/tensorflow.ProfilerService/Terminate": ADMINS | {"admin": "OK"},
    "/grpc.health.v1.Health/Check": dict.fromkeys(CALLERS, "OK"),
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": {**dict.fromkeys(CALLERS, "OK"), **DENIED},
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {**dict.fromkeys(CALLERS, "OK"), **DENIED},
    "/tensorflow.serving.SessionService/SessionRun": {**dict.fromkeys(CALLERS, "UNIMPLEMENTED"), **DENIED},
    "/nowhere": {**dict.fromkeys(CALLERS, "UNIMPLEMENTED"), **DENIED},
}
V2_RPCS = {
    "ServerLive": dict.fromkeys(CALLERS, "OK"),
    "ServerReady": dict.fromkeys(CALLERS, "OK"),
    "ServerMetadata": {**dict.fromkeys(CALLERS, "OK"), **DENIED},
    "ModelReady": PREDICTS | {"right": "OK"},
    "ModelMetadata": PREDICTS | {"right": "OK"},
    "ModelConfig": PREDICTS | {"right": "OK"},
    "ModelInfer": PREDICTS | {"right": "INVALID_ARGUMENT"},
    "RepositoryIndex": PREDICTS | {"right": "OK", "other": "OK"},
}
UNIMPLEMENTED = {**dict.fromkeys(CALLERS, "UNIMPLEMENTED"), **DENIED}


def test_the_table_has_every_rpc() -> None:
    assert set(METHODS) <= set(RPCS)


@pytest.mark.parametrize("rpc", RPCS)
def test_rpcs(served: Served, rpc: str) -> None:
    path, message = (METHODS[rpc].path, named(rpc)) if rpc in METHODS else (rpc, b"")
    assert RPCS[rpc] == {caller: served.rpc(path, caller, message)[0] for caller in CALLERS}


@pytest.mark.parametrize("rpc", V2_METHODS)
def test_rpcs_of_the_v2_protocol(served: Served, rpc: str) -> None:
    field = "model_name" if rpc == "ModelInfer" else "name"
    named = {field: MODEL} if field in V2_METHODS[rpc].request.DESCRIPTOR.fields_by_name else {}
    message = V2_METHODS[rpc].request(**named).SerializeToString()
    received = {caller: served.rpc(V2_METHODS[rpc].path, caller, message)[0] for caller in CALLERS}
    assert V2_RPCS.get(rpc, UNIMPLEMENTED) == received


def test_the_index_lists_the_models_that_the_token_covers(served: Served) -> None:
    def listed(caller: str) -> list[str]:
        return [row["name"] for row in served.rest("POST", "/v2/repository/index", caller).json()]

    assert ([MODEL], []) == (listed("right"), listed("other"))


UNAUTHENTICATED = {None: 401, "wrong": 401, "revoked": 401}
REST_PREDICTS = {**UNAUTHENTICATED, "other": 403, "right": 200, "admin": 403, "metrics": 403}
API, V2_API = f"/v1/models/{MODEL}", f"/v2/models/{MODEL}"
URLS = {
    f"POST {API}:predict": REST_PREDICTS,
    f"POST {API}/versions/1:predict": REST_PREDICTS,
    f"POST {API}/labels/x:predict": REST_PREDICTS | {"right": 400},
    f"POST {API}:classify": REST_PREDICTS,
    f"POST {API}:regress": REST_PREDICTS,
    f"GET {API}": REST_PREDICTS,
    f"GET {API}/metadata": REST_PREDICTS,
    "GET /v1/models": REST_PREDICTS | {"right": 400, "other": 400},
    "GET /V1/models/%68alf_plus_two": REST_PREDICTS,
    f"OPTIONS {API}": REST_PREDICTS | {"right": 400, "other": 400},
    "GET /v1/unknown": REST_PREDICTS | {"right": 400, "other": 400},
    f"GET {METRICS_PATH}": {**UNAUTHENTICATED, "other": 403, "right": 403, "admin": 403, "metrics": 200},
    "GET /v2/health/live": dict.fromkeys(CALLERS, 200),
    "GET /v2/health/ready": dict.fromkeys(CALLERS, 200),
    "GET /v2": {**dict.fromkeys(CALLERS, 200), **UNAUTHENTICATED},
    f"GET {V2_API}": REST_PREDICTS,
    f"GET {V2_API}/ready": REST_PREDICTS,
    f"GET {V2_API}/versions/1/config": REST_PREDICTS,
    f"POST {V2_API}/infer": REST_PREDICTS | {"right": 400},  # without inputs
    "POST /v2/repository/index": REST_PREDICTS | {"other": 200},
    f"POST /v2/repository/models/{MODEL}/load": {**dict.fromkeys(CALLERS, 501), **UNAUTHENTICATED},
    "GET /v2/health": {**dict.fromkeys(CALLERS, 404), **UNAUTHENTICATED},
    f"POST /photos/{MODEL}": REST_PREDICTS | {"right": 400},  # the body is empty
    f"POST /photos/{MODEL}/versions/1": REST_PREDICTS | {"right": 400},
    f"GET /photos/{MODEL}": REST_PREDICTS | dict.fromkeys(("right", "other"), 405),
    "GET /openapi.json": {**dict.fromkeys(CALLERS, 200), **UNAUTHENTICATED},
    "GET /ping": dict.fromkeys(CALLERS, 200),
    "POST /invocations": REST_PREDICTS,
    "GET /playground": dict.fromkeys(CALLERS, 200),
    "GET /playground/playground.js": dict.fromkeys(CALLERS, 200),
    "GET /": dict.fromkeys(CALLERS, 200),  # redirected
    "GET /unknown": {**dict.fromkeys(CALLERS, 404), **UNAUTHENTICATED},
}
BODIES = {
    "predict": {"instances": [1.0]},
    "/invocations": {"instances": [1.0]},
    **{verb: {"signature_name": verb, "examples": [{"x": 1.0}]} for verb in ("classify", "regress")},
}


@pytest.mark.parametrize("url", URLS)
def test_urls(served: Served, url: str) -> None:
    method, path = url.split(" ")
    body = BODIES.get(path.rpartition(":")[2])
    assert URLS[url] == {caller: served.rest(method, path, caller, json=body).status_code for caller in CALLERS}


@pytest.mark.parametrize("method", ["Predict", "MultiInference", "GetModelStatus"])
def test_over_grpc_a_denied_caller_cannot_tell_whether_a_model_exists(served: Served, method: str) -> None:
    path = METHODS[method].path
    exists = served.rpc(path, "other", named(method))
    missing = served.rpc(path, "other", named(method, "unknown"))
    assert exists == (missing[0], missing[1].replace("unknown", MODEL))
    assert "NOT_FOUND" == served.rpc(path, "other", named(method, "missing"))[0]


@pytest.mark.parametrize("path", ["", "/ready", "/config", "/infer"])
def test_over_v2_a_denied_caller_cannot_tell_whether_a_model_exists(served: Served, path: str) -> None:
    method = "POST" if path == "/infer" else "GET"
    exists = served.rest(method, f"{V2_API}{path}", "other")
    unknown = served.rest(method, f"/v2/models/unknown{path}", "other")
    assert (403, exists.text) == (unknown.status_code, unknown.text.replace("unknown", MODEL))


def test_with_photos_a_denied_caller_cannot_tell_whether_a_model_exists(served: Served) -> None:
    exists, unknown = (served.rest("POST", f"/photos/{name}", "other", data=b"x") for name in (MODEL, "unknown"))
    assert (403, exists.text) == (unknown.status_code, unknown.text.replace("unknown", MODEL))


@pytest.mark.parametrize("verb", [":predict", ":classify", "", "/metadata"])
def test_over_rest_a_denied_caller_cannot_tell_whether_a_model_exists(served: Served, verb: str) -> None:
    method, body = ("POST", BODIES[verb[1:]]) if verb.startswith(":") else ("GET", None)
    exists = served.rest(method, f"{API}{verb}", "other", json=body)
    unknown = served.rest(method, f"/v1/models/unknown{verb}", "other", json=body)
    assert (403, 403) == (exists.status_code, unknown.status_code)
    assert exists.text == unknown.text.replace("unknown", MODEL)
    assert 404 == served.rest(method, f"/v1/models/missing{verb}", "other", json=body).status_code


@pytest.mark.parametrize("rpc", ["Predict", "HandleReloadConfigRequest"])
def test_over_grpc_a_message_without_a_token_is_not_parsed(served: Served, rpc: str) -> None:
    assert "UNAUTHENTICATED" == served.rpc(METHODS[rpc].path, None, b"not a message")[0]


@pytest.mark.parametrize("expect", ["", "Expect: 100-continue\r\n"])
def test_over_rest_a_body_without_a_token_is_not_awaited(served: Served, expect: str) -> None:
    context = ssl.create_default_context(cafile=served.session.verify)
    with (
        socket.create_connection(("127.0.0.1", served.server.rest_api_port), 30) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        head = f"POST {API}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n{expect}\r\n"
        connection.sendall(head.encode())
        response = connection.recv(4096).decode()
    assert response.startswith("HTTP/1.1 401 ")
    assert "Connection: close" in response  # the body may follow or not


def test_rest_says_which_credentials_it_wants(served: Served) -> None:
    response = served.rest("GET", API, None)
    assert ("Bearer", '{\n    "error": "a token is required: Authorization: Bearer TOKEN"\n}') == (
        response.headers["WWW-Authenticate"],
        response.text,
    )


def test_requests_beyond_a_rate_are_told_when_to_come_back(served: Served) -> None:
    assert 200 == served.rest("GET", API, "slow").status_code
    response = served.rest("GET", API, "slow")
    assert 429 == response.status_code
    assert 900 < int(response.headers["Retry-After"]) <= 1000
    assert "RESOURCE_EXHAUSTED" == served.rpc(METHODS["GetModelStatus"].path, "slow")[0]


def test_rows_beyond_a_rate_are_rejected(served: Served) -> None:
    request = schema.PredictRequest()
    request.model_spec.name = MODEL
    request.inputs["x"].dtype = 1  # DT_FLOAT
    request.inputs["x"].tensor_shape.dim.add(size=2)
    request.inputs["x"].float_val.extend([1, 2])
    assert "OK" == served.rpc(METHODS["Predict"].path, "rows", request.SerializeToString())[0]
    rejected = served.rest("POST", f"{API}:predict", "rows", json={"instances": [1.0]})
    assert 429 == rejected.status_code
    assert "permits 0.001 rows per second" in rejected.text
    assert 200 == served.rest("GET", API, "rows").status_code
