"""REST, called with the HTTP client `requests` and with raw bytes."""

from __future__ import annotations

import base64
import gzip
import json
import socket
from http.client import HTTPResponse

import pytest
import requests
from server_process import ServerProcess

MALFORMED = "Malformed request: POST /v1/models/half_plus_two"


@pytest.fixture(scope="module")
def model(server: ServerProcess) -> str:
    """Return the URL of the model half_plus_two."""
    return f"{server.url}/v1/models/half_plus_two"


def post(url: str, body: object) -> tuple[int, object]:
    response = requests.post(url, data=body if isinstance(body, (str, bytes)) else json.dumps(body), timeout=30)
    assert response.headers["Content-Type"] == "application/json"
    return response.status_code, response.json()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param({"instances": [1.0, 2, 5.0]}, {"predictions": [3.5, 4.0, 5.5]}, id="rows"),
        pytest.param({"instances": [{"x": 1}, {"x": 3}]}, {"predictions": [3.5, 4.5]}, id="named rows"),
        pytest.param({"inputs": [1, 2]}, {"outputs": [3.5, 4.0]}, id="columns"),
        pytest.param({"inputs": {"x": [[1], [2]]}}, {"outputs": [[3.5], [4.0]]}, id="named columns"),
        pytest.param(
            {"signature_name": "two", "instances": [{"a": 3, "b": 1}]},
            {"predictions": [{"sum": 4.0, "diff": 2.0}]},
            id="several outputs by row",
        ),
        pytest.param(
            {"signature_name": "two", "inputs": {"a": [3], "b": [1]}},
            {"outputs": {"sum": [4.0], "diff": [2.0]}},
            id="several outputs by column",
        ),
        pytest.param(
            {"signature_name": "text", "instances": ["a", {"b64": "/w=="}, "ü"][::2]},
            {"predictions": [{"t": "a", "t_bytes": {"b64": "YQ=="}}, {"t": "ü", "t_bytes": {"b64": "w7w="}}]},
            id="strings, and base64 for an alias that ends in _bytes",
        ),
    ],
)
def test_predict(model: str, body: object, expected: object) -> None:
    assert (200, expected) == post(f"{model}:predict", body)


def test_b64_represents_any_bytes(model: str) -> None:
    all_bytes = bytes(range(256))
    body = {"signature_name": "text", "inputs": [{"b64": base64.b64encode(all_bytes).decode()}]}
    response = requests.post(f"{model}:predict", json=body, timeout=30).content
    assert base64.b64encode(all_bytes).decode() in response.decode("latin-1")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("", 3.0), ("/versions/1", 2.0), ("/versions/003", 3.0), ("/labels/stable", 2.0), ("/LABELS/stable", 2.0)],
)
def test_versions_and_labels(model: str, choice: str, expected: float) -> None:
    assert (200, {"predictions": [expected]}) == post(f"{model}{choice}:predict", {"instances": [0]})


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        pytest.param("m:predict", {"instances": [1]}, 404, "Servable not found for request: Latest(m)", id="model"),
        pytest.param(
            "half_plus_two/versions/2:predict",
            {"instances": [1]},
            404,
            "Servable not found for request: Specific(half_plus_two, 2)",
            id="version",
        ),
        pytest.param(
            "half_plus_two/labels/x:predict",
            {"instances": [1]},
            400,
            "Unrecognized servable version label: x",
            id="label",
        ),
        pytest.param(
            "half_plus_two:predict",
            {"signature_name": "s", "instances": [1]},
            400,
            'Serving signature name: "s" not found in signature def',
            id="signature",
        ),
        pytest.param(
            "half_plus_two:predict",
            {"signature_name": "none", "instances": [1]},
            400,
            "Failed to get input map for signature: none",
            id="signature without inputs",
        ),
        pytest.param("m:predict", "", 400, "JSON Parse error: The document is empty", id="empty body comes first"),
        pytest.param(
            "half_plus_two:predict",
            '{"instances": [1,]}',
            400,
            "JSON Parse error: Invalid value. at offset: 17",
            id="JSON",
        ),
        pytest.param(
            "half_plus_two:predict",
            {"inputs": {"z": 1}},
            400,
            "Missing named input: x in 'inputs' object.",
            id="input",
        ),
        pytest.param(
            "half_plus_two:predict",
            {"instances": ["a"]},
            400,
            "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: "
            'JSON Value: "a" Type: String is not of expected type: float',
            id="type",
        ),
        pytest.param("half_plus_two:PREDICT", {}, 400, f"{MALFORMED}:PREDICT", id="verb"),
        pytest.param(
            "half_plus_two:predict?x=1",
            {},
            400,
            f"{MALFORMED}:predict?x=1",
            id="query",
        ),
    ],
)
def test_invalid_requests(server: ServerProcess, path: str, body: object, status: int, error: str) -> None:
    assert (status, {"error": error}) == post(f"{server.url}/v1/models/{path}", body)


def test_classify(model: str) -> None:
    body = {"signature_name": "classify", "examples": [{"x": 1.0}, {"x": 2.0}]}
    assert (200, {"results": [[["half", 3.5]], [["half", 4.0]]]}) == post(f"{model}:classify", body)


def test_regress(model: str) -> None:
    body = {"signature_name": "regress", "context": {"x": 8.0}, "examples": [{"x": 1.0}, {}]}
    assert (200, {"results": [3.5, 7.0]}) == post(f"{model}:regress", body)


def test_status(model: str) -> None:
    def entry(version: str) -> object:
        return {"version": version, "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}

    assert {"model_version_status": [entry("3"), entry("1")]} == requests.get(model, timeout=30).json()
    assert {"model_version_status": [entry("1")]} == requests.get(f"{model}/versions/1", timeout=30).json()


def test_metadata(model: str) -> None:
    response = requests.get(f"{model}/versions/1/metadata", timeout=30).json()
    assert {"name": "half_plus_two", "signature_name": "", "version": "1"} == response["model_spec"]
    assert {
        "inputs": {
            "x": {
                "dtype": "DT_FLOAT",
                "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
                "name": "x:0",
            }
        },
        "outputs": {
            "y": {
                "dtype": "DT_FLOAT",
                "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
                "name": "y:0",
            }
        },
        "method_name": "tensorflow/serving/predict",
        "defaults": {},
    } == response["metadata"]["signature_def"]["signature_def"]["serving_default"]


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/v1/models", 400, "Missing model name in request."),
        ("GET", "/v1/models/m", 404, "Could not find any versions of model m"),
        ("GET", "/v1/models/half_plus_two/", 400, "Malformed request: GET /v1/models/half_plus_two/"),
        ("PUT", "/v1/models/half_plus_two", 400, "Malformed request: PUT /v1/models/half_plus_two"),
        ("GET", "/v1/models/a%2Fb", 404, "Could not find any versions of model a/b"),
    ],
)
def test_errors_of_other_urls(server: ServerProcess, method: str, path: str, status: int, error: str) -> None:
    response = requests.request(method, server.url + path, timeout=30)
    assert (status, {"error": error}) == (response.status_code, response.json())


@pytest.mark.parametrize(("path", "status"), [("/", 404), ("/v2/unknown", 404), ("/v1/models/%zz", 400)])
def test_urls_outside_the_api_return_a_page(server: ServerProcess, path: str, status: int) -> None:
    """Sends raw bytes, because client libraries would fix the path."""
    with socket.create_connection(("127.0.0.1", server.rest_api_port), 10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        response = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    head, _, body = response.partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert "content-type: text/html" in head.lower()
    assert body.startswith("<HTML>")


def test_a_gzipped_body_is_decompressed(model: str) -> None:
    body = gzip.compress(b'{"instances": [4]}')
    response = requests.post(f"{model}:predict", data=body, headers={"Content-Encoding": "gzip"}, timeout=30)
    assert {"predictions": [5.0]} == response.json()


def test_a_gzipped_body_that_is_too_large_counts_as_empty(model: str) -> None:
    body = gzip.compress(b" " * (101 * 2**20))
    response = requests.post(f"{model}:predict", data=body, headers={"Content-Encoding": "gzip"}, timeout=60)
    assert {"error": "JSON Parse error: The document is empty"} == response.json()


def test_connections_are_kept_open(model: str) -> None:
    with requests.Session() as session:
        first = session.get(model, timeout=30, stream=True)
        port = first.raw.connection.sock.getsockname()[1]
        first.content  # noqa: B018 - reading it returns the connection to the pool
        second = session.get(model, timeout=30, stream=True)
        assert port == second.raw.connection.sock.getsockname()[1]


def test_no_header_names_the_server(model: str) -> None:
    assert {"content-type", "content-length", "date"} == {
        name.lower() for name in requests.get(model, timeout=30).headers
    }


def raw(server: ServerProcess, head: str, body: bytes = b"") -> tuple[str, str]:
    """Send raw bytes; return the status line and the body of the response."""
    with socket.create_connection(("127.0.0.1", server.rest_api_port), 10) as connection:
        connection.sendall(head.encode("latin-1") + b"\r\n\r\n" + body)
        response = b"".join(iter(lambda: connection.recv(65536), b"")).decode("latin-1")
    return response.partition("\r\n")[0], response.partition("\r\n\r\n")[2]


def test_an_upgrade_header_is_ignored(server: ServerProcess) -> None:
    """Java's HTTP client offers an upgrade to HTTP/2 with every plain request; RFC 9110, 7.8 allows ignoring it."""
    body = b'{"instances": [4]}'
    head = (
        "POST /v1/models/half_plus_two:predict HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        f"Upgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\nContent-Length: {len(body)}\r\nConnection: close"
    )
    status, response = raw(server, head, body)
    assert ("HTTP/1.1 200 OK", {"predictions": [5.0]}) == (status, json.loads(response))


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v1/models/%ff", "Could not find any versions of model \xff"),
        (f"/v1/models/m/versions/{'0' * 5000}7", "Could not find version 7 of model m"),
        ("/v1/models/half_plus_two?", "Could not find any versions of model half_plus_two?"),
        ("/v1/models/half_plus_two#a?b", "Could not find any versions of model half_plus_two#a?b"),
        ("/v1/models/half_plus_two/metadata#a", "Malformed request: GET /v1/models/half_plus_two/metadata#a"),
        ("/v1/models?", "Malformed request: GET /v1/models?"),
        ("/v1/models/versions/1", "Missing model name in request."),
        ("/v1/models/labels/a/metadata", "Missing model name in request."),
        ("http://host:1/v1/models/a?b=1", "Could not find any versions of model a?b=1"),
    ],
)
def test_unusual_names_and_numbers_are_rejected_without_failing(server: ServerProcess, path: str, error: str) -> None:
    status, response = raw(server, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close")
    assert status in ("HTTP/1.1 404 Not Found", "HTTP/1.1 400 Bad Request")
    assert {"error": error} == json.loads(response)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_http_1_0_connections_are_kept_open_on_request(server: ServerProcess, version: str) -> None:
    """RFC 9112, 9.3: HTTP/1.1 connections are kept open by default, without a header in the response."""
    request = f"GET /v1/models/half_plus_two HTTP/{version}\r\nConnection: keep-alive\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.rest_api_port), 10) as connection:
        for _ in range(2):
            connection.sendall(request)
            response = HTTPResponse(connection)
            response.begin()
            assert "model_version_status" in json.load(response)
            assert ("keep-alive" if version == "1.0" else None) == response.getheader("connection")


def test_http_1_0_connections_are_closed_by_default(server: ServerProcess) -> None:
    status, response = raw(server, "GET /v1/models/half_plus_two HTTP/1.0")
    assert "HTTP/1.1 200 OK" == status
    assert "model_version_status" in response


def test_a_signature_name_that_is_not_utf_8_is_unknown(model: str) -> None:
    response = requests.post(f"{model}:predict", data=b'{"signature_name": "\xff", "instances": [1]}', timeout=30)
    assert 400 == response.status_code
    assert b'Serving signature name: \\"\xff\\" not found in signature def' in response.content


@pytest.mark.parametrize("number", ["9223372036854775808", "9" * 5000], ids=["2^63", "5000 digits"])
def test_a_version_beyond_64_bits_is_rejected_with_an_empty_body(server: ServerProcess, number: str) -> None:
    status, response = raw(server, f"GET /v1/models/m/versions/{number} HTTP/1.1\r\nHost: x\r\nConnection: close")
    assert ("HTTP/1.1 400 Bad Request", "") == (status, response)


PAGE = "<HTML><HEAD>\n<TITLE>{0} {1}</TITLE>\n</HEAD><BODY>\n<H1>{1}</H1>\n</BODY></HTML>\n"


@pytest.mark.parametrize(
    ("head", "status", "title"),
    [
        ("FOO /v1/models/m HTTP/1.1\r\nHost: x", 501, "Not Implemented"),
        ("TRACE /v1/models/m HTTP/1.1\r\nHost: x\r\nConnection: close", 501, "Not Implemented"),
        ("CONNECT x:1 HTTP/1.1\r\nHost: x\r\nConnection: close", 501, "Not Implemented"),
        ("GET /v1/models/m HTTP/2.0\r\nHost: x", 400, "Bad Request"),
        ("POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: ten", 400, "Bad Request"),
        ("\x16\x03\x01\x02\x00\x01", 400, "Bad Request"),
        ("GET /v1/models/[m] HTTP/1.1\r\nHost: x\r\nConnection: close", 400, "Bad Request"),
        ("GET /v1/models/m?x=%zz HTTP/1.1\r\nHost: x\r\nConnection: close", 400, "Bad Request"),
    ],
    ids=["made up", "TRACE", "CONNECT", "HTTP/2.0", "bad length", "TLS", "brackets", "bad escape"],
)
def test_invalid_http_requests_get_a_page(server: ServerProcess, head: str, status: int, title: str) -> None:
    line, response = raw(server, head)
    assert (f"HTTP/1.1 {status} {title}", PAGE.format(status, title)) == (line, response)
