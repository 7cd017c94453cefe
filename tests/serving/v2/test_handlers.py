"""The calls of the v2 protocol on both ports, on a registry without TensorFlow."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.call.http import Request, Response
from savedmodel_bakery.serving.models.registry import Registry, State
from savedmodel_bakery.serving.v2.codec import read_index_request
from savedmodel_bakery.serving.v2.handlers import GrpcHandlers, HttpHandlers
from savedmodel_bakery.wire.json.parser import survey
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.v2 import http_encode, schema

COUNT = 30_000  # JSON with as many values is parsed in turn


def _send(registry: Registry, request: Request, context: RequestContext) -> Response:
    route = HttpHandlers(registry, limits=Limits(), check_method_names=True).find(request)
    assert route
    return route.handle(request, context)


def _request(name: str, text: bytes, data: bytes = b"") -> Request:
    return Request("POST", f"/v2/models/{name}/infer", {http_encode.HEADER_LENGTH.lower(): str(len(text))}, text + data)


def test_the_index_may_be_that_of_ready_versions(registry: Registry) -> None:
    registry.update(registry.add("m", 10, Path("/m/10")), State.LOADING)
    call = GrpcHandlers(registry, check_method_names=True).calls()[schema.METHODS["RepositoryIndex"].path].handle
    for ready, versions in ((False, ["3", "10"]), (True, ["3"])):
        request = Request("POST", "/v2/repository/index", {}, json.dumps({"ready": ready}).encode())
        rows = json.loads(_send(registry, request, RequestContext()).body)
        assert versions == [row["version"] for row in rows]
        response = call(schema.RepositoryIndexRequest(ready=ready), RequestContext())
        assert versions == [row.version for row in response.models]


@pytest.mark.parametrize(("body", "ready"), [(b"", False), (b" {}", False), (b'{"ready": true}', True)])
def test_a_request_for_the_index_may_be_empty(body: bytes, ready: bool) -> None:
    assert ready == read_index_request(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is not valid JSON: "),
        (b"\xff", "the body is not valid JSON: "),
        (b"[" * 100_000, "the body is not valid JSON: "),
        (b"[]", 'the body must be a JSON object, whose "ready" is true or false'),
        (b'{"ready": 1}', 'the body must be a JSON object, whose "ready" is true or false'),
    ],
    ids=["cut off", "bytes", "nesting", "list", "number"],
)
def test_other_requests_for_the_index_are_invalid(body: bytes, message: str) -> None:
    with pytest.raises(StatusError, match=message) as raised:
        read_index_request(body)
    assert Code.INVALID_ARGUMENT is raised.value.code


def test_a_request_that_waits_for_memory_does_not_keep_others_from_parsing(registry: Registry) -> None:
    """Large JSON is parsed in turn; the budget knows only requests that wait for memory, not for that turn."""
    x = {"name": "x", "datatype": "FP32", "shape": [COUNT], "data": [1] * COUNT}
    k = {"name": "k", "datatype": "FP32", "shape": [COUNT], "parameters": {"binary_data_size": 4 * COUNT}}
    both, alone = (json.dumps({"inputs": inputs}).encode() for inputs in ([x, k], [x]))
    budget = MemoryBudget(2**30)
    other, waiting = RequestContext(memory=budget), RequestContext(memory=budget, timeout_s=60)
    other.charge(budget.size - survey(both).size)  # nothing is left for the binary data
    with ThreadPoolExecutor() as threads:
        response = threads.submit(_send, registry, _request("m", both, np.float32([2] * COUNT).tobytes()), waiting)
        try:
            wait_until(lambda: budget.queued == 1)
            [y] = json.loads(_send(registry, _request("m", alone), RequestContext(timeout_s=20)).body)["outputs"]
        finally:
            other.close()
        [y_both] = json.loads(response.result().body)["outputs"]
    waiting.close()
    assert ([8] * COUNT, [3] * COUNT, 0) == (y["data"], y_both["data"], budget.held)
