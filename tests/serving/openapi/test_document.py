"""The OpenAPI document describes paths and methods that the server has."""

from __future__ import annotations

import json
import re

import pytest

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.http.messages import Request
from savedmodel_bakery.serving.models.registry import Registry
from savedmodel_bakery.serving.openapi import handlers
from savedmodel_bakery.serving.openapi.document import document
from savedmodel_bakery.serving.photos.handlers import Handlers as PhotoHandlers
from savedmodel_bakery.serving.rest.handlers import Handlers as RestHandlers
from savedmodel_bakery.serving.v2.http_handlers import HttpHandlers

OPERATIONS = [(method, path) for path, item in document()["paths"].items() for method in item if method != "parameters"]


def statuses(method: str, path: str) -> list[int | str]:
    """Return the status, or the message of the error, of a request from each API that has the path."""
    request = Request(method.upper(), path, {}, b"{}")
    registry = Registry()
    apis = [
        RestHandlers(registry, limits=Limits(), check_method_names=False),
        HttpHandlers(registry, limits=Limits(), check_method_names=False),
        PhotoHandlers(registry),
    ]
    received: list[int | str] = []
    for api in apis:
        route = api.find(request)
        if route is not None:
            try:
                received.append(route.handle(request, RequestContext()).status)
            except Exception as error:
                received.append(str(error))
    return received


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[" ".join(operation) for operation in OPERATIONS])
def test_the_server_has_every_operation(method: str, path: str) -> None:
    [status] = statuses(method, path.format(model="m", version="1", label="l"))
    assert status not in (404, 405, 501)
    assert "Malformed request" not in str(status)


def test_every_path_has_the_parameters_that_it_names() -> None:
    for path, item in document()["paths"].items():
        names = [each["$ref"].rpartition("/")[2] for each in item.get("parameters", [])]
        assert re.findall(r"{(\w+)}", path) == names


def test_every_schema_is_used_and_every_reference_resolves() -> None:
    components = document()["components"]
    text = json.dumps(document())
    referenced = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert set(components["schemas"]) <= referenced <= set(components["schemas"])


def test_the_document_has_a_url() -> None:
    route = handlers.find(Request("GET", "/openapi.json", {}))
    assert route is not None
    assert document() == json.loads(route.handle(Request("GET", "/openapi.json", {}), RequestContext()).body)
    assert 405 == route.handle(Request("POST", "/openapi.json", {}), RequestContext()).status
    assert handlers.find(Request("GET", "/openapi", {})) is None
