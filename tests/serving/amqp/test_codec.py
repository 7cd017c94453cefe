"""Errors as responses and as headers."""

from __future__ import annotations

import json
import math

import pytest

from savedmodel_bakery.serving.amqp.codec import delivery_limit_reached, encode_failure, is_temporary
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.status import Code, StatusError


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK], ids=lambda code: code.name)
def test_every_code_is_sent_in_headers(code: Code) -> None:
    response = encode_failure(StatusError(code, "größer"), amqp.JSON)
    error = amqp.decode_status(amqp.encode_status(response.error))
    assert error is not None
    assert (code, "größer") == (error.code, error.message)


def test_headers_of_a_success_have_no_error() -> None:
    assert amqp.decode_status({amqp.STATUS: 0}) is None


def test_a_long_message_is_shortened_in_headers_alone() -> None:
    response = encode_failure(StatusError(Code.INTERNAL, "x" * 200_000), amqp.JSON)
    assert response.error is not None
    assert "x" * 1024 + "...TRUNCATED" == response.error.message
    assert {"error": "x" * 200_000} == json.loads(response.body)


TEMPORARY = {
    "unavailable": (StatusError(Code.UNAVAILABLE, ""), True),
    "shutting down": (StatusError(Code.CANCELLED, ""), True),
    "busy": (StatusError(Code.RESOURCE_EXHAUSTED, "", retry_after_s=1.0), True),
    "busy, no other attempt": (StatusError(Code.RESOURCE_EXHAUSTED, "", retry_after_s=math.inf), False),
    "beyond a limit": (StatusError(Code.RESOURCE_EXHAUSTED, ""), False),
    "invalid": (StatusError(Code.INVALID_ARGUMENT, ""), False),
}


@pytest.mark.parametrize(("error", "expected"), TEMPORARY.values(), ids=TEMPORARY)
def test_calls_are_repeated_while_the_server_is_unavailable_or_busy(error: StatusError, expected: bool) -> None:
    response = encode_failure(error, amqp.JSON)
    assert response.error is not None
    assert [expected, expected] == [is_temporary(error), is_temporary(response.error)]


def test_a_protobuf_failure_has_an_empty_body() -> None:
    response = encode_failure(delivery_limit_reached(5, ""), amqp.PROTOBUF, dead_letter=True)
    assert (b"", True) == (response.body, response.dead_letter)
    assert response.error is not None
    assert "delivered 5 times" in response.error.message
