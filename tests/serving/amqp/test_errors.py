"""Errors as responses and as headers, and which queues a worker may send replies to."""

from __future__ import annotations

import json
import math

import pytest

from savedmodel_bakery.serving.amqp.errors import (
    check_reply_queue,
    delivery_limit_reached,
    encode_failure,
    is_temporary,
)
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


BOTH = ("labels", "results*")
NAMES = {
    "amq.gen-JzTY20BRgKO-HjmUJj0wLg": True,
    "amq.rabbitmq.reply-to.g1h2AA5yZXBseUA": True,
    "amq_5f2a9c1be0d34c7f9a8e": True,
    "amqp": False,
    "labels": True,
    "labels2": False,
    "label": False,
    "results": True,
    "results.photos": True,
    "result": False,
    "my.results": False,
    "bakery.predict": False,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_reply_queue_is_one_of_the_broker_or_matches_a_pattern(name: str) -> None:
    assert NAMES[name] == (check_reply_queue(name, BOTH) is None)
    assert check_reply_queue(name, ["*"]) is None


def test_the_reason_names_the_queue_and_what_is_allowed() -> None:
    error = check_reply_queue("payroll", BOTH)
    assert error is not None
    expected = 'reply_to "payroll" is not allowed: must be amq.* or amq_* or labels or results* (--result-queue)'
    assert (Code.PERMISSION_DENIED, expected) == (error.code, error.message)
