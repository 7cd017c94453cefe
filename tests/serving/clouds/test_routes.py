"""The routes of managed clouds: the URLs that they stand for, and a server that is called by them."""

from __future__ import annotations

import pytest
import requests
from server_process import ServerProcess

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.http import Request, Response, Route
from savedmodel_bakery.serving.clouds.routes import CloudRoutes
from savedmodel_bakery.wire.status import StatusError

PREDICT = "/v1/endpoints/1/deployedModels/2:predict"
JPEG, JSON = {"content-type": "image/jpeg"}, {"content-type": "application/json"}


def attributes(text: str, **headers: str) -> dict[str, str]:
    return {"x-amzn-sagemaker-custom-attributes": text, **headers}


def find(request: Request) -> Route | None:
    """Find a request by the routes of a server whose only API answers with the URL it was found by."""

    def echo(meant: Request) -> Route:
        answer = Response(200, f"{meant.method} {meant.target}".encode())
        return Route(lambda _request, _context: answer)

    return CloudRoutes("/health", PREDICT, model_name="flowers", apis=[echo]).find(request)


def meant(request: Request) -> str:
    route = find(request)
    assert route is not None
    return route.handle(request, RequestContext()).body.decode()


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request("GET", "/health", {}), "GET /v2/health/ready"),
        (Request("POST", PREDICT, JSON), "POST /v1/models/flowers:predict"),
        (Request("POST", PREDICT, {}), "POST /v1/models/flowers:predict"),
        (Request("POST", f"{PREDICT}?key=1", JSON), "POST /v1/models/flowers:predict"),
        (Request("POST", PREDICT, JPEG), "POST /photos/flowers"),
        (Request("POST", PREDICT, {"content-type": " Image/PNG; q=1"}), "POST /photos/flowers"),
        (Request("POST", PREDICT, {"content-type": "application/x-image"}), "POST /photos/flowers"),
        (Request("POST", PREDICT, {"content-type": "multipart/form-data; boundary=b"}), "POST /photos/flowers"),
        (Request("GET", PREDICT, {}), "GET /photos/flowers"),
        (
            Request("POST", PREDICT, attributes("tfs-model-name=a b,tfs-model-version=3,tfs-method=classify")),
            "POST /v1/models/a%20b/versions/3:classify",
        ),
        (
            Request("POST", PREDICT, attributes("trace=1,tfs-model-version=3", **JPEG)),
            "POST /photos/flowers/versions/3",
        ),
    ],
)
def test_a_route_stands_for_a_url_of_an_api(request_: Request, expected: str) -> None:
    assert expected == meant(request_)


@pytest.mark.parametrize("path", ["/ping", "/health/", "/v1/models/flowers:predict"])
def test_other_paths_are_left_to_the_apis(path: str) -> None:
    assert find(Request("POST", path, {})) is None


def test_a_route_that_is_not_set_has_no_path() -> None:
    routes = CloudRoutes("", "", model_name="flowers", apis=[find])
    assert routes.find(Request("GET", "", {})) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tfs-model-version=new", 'invalid version "new": must be a number between 0 and 9223372036854775807'),
        (f"tfs-model-version={2**63}", 'invalid version "9223372036854775808": must be a number between 0 and'),
        ("tfs-method=explain", 'invalid tfs-method "explain": must be predict, classify, regress'),
    ],
)
def test_attributes_are_checked(text: str, message: str) -> None:
    with pytest.raises(StatusError, match=message):
        meant(Request("POST", PREDICT, attributes(text)))


@pytest.mark.timeout(5)
def test_attributes_without_values_take_no_time() -> None:
    """A regular expression holds the lock of the interpreter, so all other requests would wait."""
    assert "POST /v1/models/flowers:predict" == meant(Request("POST", PREDICT, attributes("tfs-" * 16_000)))


def test_a_server_is_called_by_its_routes(server: ServerProcess) -> None:
    """The server has /ping and /invocations."""
    assert 200 == requests.get(f"{server.url}/ping", timeout=2).status_code
    url, body = f"{server.url}/invocations", {"instances": [1.0]}
    assert {"predictions": [3.5]} == requests.post(url, json=body, timeout=30).json()
    chosen = attributes("tfs-model-name=half_plus_two,tfs-model-version=1,tfs-method=predict")
    assert {"predictions": [2.5]} == requests.post(url, json=body, headers=chosen, timeout=30).json()
    refused = requests.post(url, json=body, headers=attributes("tfs-method=x"), timeout=30)
    assert (400, {"error"}) == (refused.status_code, set(refused.json()))
    refused = requests.get(url, timeout=30)
    assert (405, "POST") == (refused.status_code, refused.headers["Allow"])
