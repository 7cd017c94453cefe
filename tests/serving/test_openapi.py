"""The OpenAPI document describes the paths and methods that the server has, and no others."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from importlib.resources import files
from itertools import product
from typing import Any

import pytest

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.call.http import Request
from savedmodel_bakery.serving.models.registry import Registry
from savedmodel_bakery.serving.photos import PhotoHandlers
from savedmodel_bakery.serving.ports import find_openapi
from savedmodel_bakery.serving.rest.rest_api import RestApi
from savedmodel_bakery.serving.v2.handlers import HttpHandlers
from savedmodel_bakery.wire.status import Code, StatusError

DOCUMENT: dict[str, Any] = json.loads((files("savedmodel_bakery.serving") / "static/openapi.json").read_bytes())
OPERATIONS = [
    (method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item if method != "parameters"
]
NAMES = {"model": "m", "version": "1", "label": "l"}
V2 = HttpHandlers(Registry(), limits=Limits(), check_method_names=False)
APIS = [RestApi(Registry(), limits=Limits(), check_method_names=False), V2, PhotoHandlers(Registry())]
# All operations on a model, and some that no server has.
MODELS = ("/photos/{model}", "/v1/models/{model}", "/v2/models/{model}")
CHOICES = ("", "/versions/{version}", "/labels/{label}")
CALLS = ("", "/metadata", "/ready", "/config", "/infer", ":predict", ":classify", ":regress", ":multiInference")
CANDIDATES = [(method, "".join(parts)) for method, *parts in product(("GET", "POST", "PUT"), MODELS, CHOICES, CALLS)]


def has_operation(method: str, path: str) -> bool:
    """Return whether an API of the server has an operation, whose models it has not."""
    request = Request(method, path.format(**NAMES), {}, b"{}")
    for api in APIS:
        route = api.find(request)
        if route is None:
            continue
        try:
            return route.handle(request, RequestContext()).status not in (404, 405)
        except StatusError as error:
            return error.code is not Code.UNIMPLEMENTED and "Malformed request" not in error.message
    return False


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[" ".join(operation) for operation in OPERATIONS])
def test_the_server_has_every_operation(method: str, path: str) -> None:
    assert has_operation(method, path)


def test_every_operation_on_a_model_is_described() -> None:
    on_models = {(method, path) for method, path in OPERATIONS if path.startswith(MODELS)}
    assert on_models == {candidate for candidate in CANDIDATES if has_operation(*candidate)}


def test_every_url_of_v2_is_described() -> None:
    paths = [(method, path.format(**NAMES)) for method, path in OPERATIONS]
    offered = [(method, url.path) for url in V2._urls for method in url.methods if method != "HEAD"]
    assert len(offered) > 5
    assert [] == [
        url for url in offered if not any(url[0] == method and re.fullmatch(url[1], path) for method, path in paths)
    ]


def test_every_path_has_the_parameters_that_it_names() -> None:
    for path, item in DOCUMENT["paths"].items():
        names = [each["$ref"].rpartition("/")[2] for each in item.get("parameters", [])]
        assert re.findall(r"{(\w+)}", path) == names


def test_every_component_is_used_and_every_reference_resolves() -> None:
    referenced = set(re.findall(r'"#/components/(\w+)/(\w+)"', json.dumps(DOCUMENT)))
    components = {(kind, name) for kind, table in DOCUMENT["components"].items() for name in table}
    assert components - {("securitySchemes", "token")} == referenced


def test_the_document_has_a_url() -> None:
    route = find_openapi(Request("GET", "/openapi.json", {}))
    assert route is not None
    assert DOCUMENT == json.loads(route.handle(Request("GET", "/openapi.json", {}), RequestContext()).body)
    assert version("savedmodel-bakery") == DOCUMENT["info"]["version"]
    assert 405 == route.handle(Request("POST", "/openapi.json", {}), RequestContext()).status
    assert find_openapi(Request("GET", "/openapi", {})) is None
