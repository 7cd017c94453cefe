"""HTTP status codes and bodies of errors."""

from __future__ import annotations

import json

import pytest

from savedmodel_bakery.serving.call.http import error_response
from savedmodel_bakery.wire.status import Code, StatusError

# The table of tensorflow_model_server.
EXPECTED = {
    "OK": 200, "CANCELLED": 499, "UNKNOWN": 500, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429, "FAILED_PRECONDITION": 400,
    "ABORTED": 409, "OUT_OF_RANGE": 400, "UNIMPLEMENTED": 501, "INTERNAL": 500, "UNAVAILABLE": 503, "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}  # fmt: skip


@pytest.mark.parametrize("code", Code)
def test_every_code_becomes_an_http_status_and_the_message_the_body(code: Code) -> None:
    response = error_response(StatusError(code, "why"))
    assert (EXPECTED[code.name], {"error": "why"}) == (response.status, json.loads(response.body))
    expected = {"WWW-Authenticate": "Bearer"} if code is Code.UNAUTHENTICATED else {}
    assert ("application/json", expected) == (response.content_type, response.headers)


def test_the_time_to_wait_is_sent_in_whole_seconds() -> None:
    error = StatusError(Code.RESOURCE_EXHAUSTED, "why", retry_after_s=1.2)
    assert {"Retry-After": "2"} == error_response(error).headers
