"""A call gives back its place, and is counted once: by its API if it was handled, always if it was rejected."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.limits import Limits, OverloadError
from savedmodel_bakery.serving.call import call as call_module
from savedmodel_bakery.serving.call.call import Call, Entrypoint
from savedmodel_bakery.wire.status import Code, StatusError


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str, Code]]:
    """The calls that were counted."""
    calls: list[tuple[str, str, str, Code]] = []
    monkeypatch.setattr(call_module.metrics, "count_request", lambda *arguments: calls.append(arguments[:4]))
    return calls


def begin(api: str | None = "Predict", *, admission: Admission | None = None) -> Call:
    admission = admission or Admission(Limits(), MemoryBudget(2**20), turns=1)
    return Call(Entrypoint("GRPC", str), "/call", admission, None, api=api, timeout_s=None)


def respond(request: str, context: Any) -> str:
    context.check_model("m")
    return f"response to {request}"


def raise_not_found(_request: object, _context: object) -> None:
    raise StatusError(Code.NOT_FOUND, "not found")


def test_a_call_that_was_handled_is_counted_with_its_model(counted: list[Any]) -> None:
    call = begin()
    assert "response to request" == call.handle(respond, "request")
    call.leave()
    assert [("m", "Predict", "GRPC", Code.OK)] == counted


def test_a_call_that_failed_is_counted_with_its_code(counted: list[Any]) -> None:
    call = begin()
    with pytest.raises(StatusError) as error:
        call.handle(raise_not_found, None)
    assert Code.NOT_FOUND is call.fail(error.value).code
    call.leave()
    assert [("", "Predict", "GRPC", Code.NOT_FOUND)] == counted


def test_a_call_without_an_api_is_counted_only_if_it_is_rejected(counted: list[Any]) -> None:
    handled, rejected = begin(None), begin(None)
    handled.handle(respond, "request")
    handled.leave()
    assert [] == counted
    rejected.fail(OverloadError("too many", limit="max_waiting_calls"))
    rejected.leave()
    assert [("", "", "GRPC", Code.RESOURCE_EXHAUSTED)] == counted


def test_a_call_whose_caller_has_gone_before_it_was_handled_is_not_counted(counted: list[Any]) -> None:
    begin().leave()
    assert [] == counted


def test_a_place_is_given_back_by_the_call_that_took_it() -> None:
    admission = Admission(Limits(waiting_calls=0), MemoryBudget(2**20), turns=1)
    first, second = begin(admission=admission), begin(admission=admission)
    first.enter()
    with pytest.raises(OverloadError):
        second.enter()
    second.leave()
    with pytest.raises(OverloadError):
        begin(admission=admission).enter()
    first.leave()
    begin(admission=admission).enter()


def test_an_unexpected_exception_becomes_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert Code.INTERNAL is begin().fail(ZeroDivisionError()).code
    assert "/call failed with an unexpected exception" in caplog.text
