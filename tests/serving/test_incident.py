"""Unexpected exceptions: the caller gets INTERNAL and a request id, the log the traceback with the same id."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import requests
from server_process import free_port

from savedmodel_bakery.serving import server
from savedmodel_bakery.serving.access.access import Access
from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.call.call import Entrypoint, Rpc
from savedmodel_bakery.serving.grpc.server import GrpcServer
from savedmodel_bakery.serving.rest.rest_api import RestApi
from savedmodel_bakery.serving.rest.router import Router
from savedmodel_bakery.serving.rest.server import RestServer
from savedmodel_bakery.serving.telemetry.requests import report_exception
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import Code

PATHS = (METHODS["Predict"].path, METHODS["Classify"].path)
ADMISSION = Admission(Limits(), MemoryBudget(), turns=1)
MESSAGE = re.compile(r"internal error; see request id ([0-9a-f]{32}) in the server's log")


def check_log(caplog: pytest.LogCaptureFixture, message: str) -> None:
    """Check that the log has the traceback under the request id of a message to the caller."""
    match = MESSAGE.fullmatch(message)
    assert match is not None, message
    [record] = [record for record in caplog.records if match[1] in record.getMessage()]
    assert record.exc_info is not None
    assert ZeroDivisionError is record.exc_info[0]


def fail(*_: Any) -> Any:
    raise ZeroDivisionError("a secret")


def test_an_incident_is_logged_and_becomes_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    try:
        fail()
    except ZeroDivisionError:
        error = report_exception(logging.getLogger("test"), "POST /v1/models/m:predict")
    assert Code.INTERNAL == error.code
    check_log(caplog, error.message)
    assert "POST /v1/models/m:predict failed" in caplog.text


def test_rest_returns_500_and_the_request_id(caplog: pytest.LogCaptureFixture) -> None:
    registry: Any = SimpleNamespace(statuses=fail)
    find = RestApi(registry, limits=ADMISSION.limits, check_method_names=False).find
    port, router = free_port(), Router([find], access=Access(), cors=False)
    running = RestServer(router, "127.0.0.1", port, ADMISSION, Entrypoint("REST", str), timeout_s=None)
    running.start()
    response = requests.get(f"http://127.0.0.1:{port}/v1/models/m", timeout=30)
    running.stop(5)
    assert 500 == response.status_code
    check_log(caplog, response.json()["error"])


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[grpc.Channel]:
    rpcs = {PATHS[0]: Rpc(fail, fail), PATHS[1]: Rpc(bytes, fail)}
    address = f"unix:{tmp_path / 'socket'}"
    running = GrpcServer(rpcs, [address], Entrypoint("GRPC", str), access=Access(), admission=ADMISSION)
    running.start()
    with grpc.insecure_channel(address) as opened:
        yield opened
    running.stop(0)


@pytest.mark.parametrize("path", PATHS, ids=["in decode", "in handle"])
def test_grpc_returns_internal_and_the_request_id(
    channel: grpc.Channel, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    with pytest.raises(grpc.RpcError) as error:
        channel.unary_unary(path)(b"", timeout=30)
    assert "INTERNAL" == error.value.code().name
    check_log(caplog, error.value.details())


@pytest.mark.parametrize(("error", "statuses"), [(MemoryError(), [1]), (ValueError(), [])])
def test_a_thread_without_memory_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, statuses: list[int]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    server._end_without_memory(threading.ExceptHookArgs((type(error), error, None, threading.current_thread())))
    assert statuses == ended
    assert "Thread MainThread has failed" in caplog.text
