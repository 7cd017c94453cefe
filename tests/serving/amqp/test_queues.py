"""Copies of messages, and which queues a worker may send replies to. Without a broker."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import aio_pika
import pytest
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from savedmodel_bakery.serving.amqp import queues
from savedmodel_bakery.serving.amqp.queues import check_reply_queue
from savedmodel_bakery.wire.status import Code

CHANNEL: Any = None


def received(message: aio_pika.Message) -> aio_pika.IncomingMessage:
    """Return the message as a consumer receives it."""
    header = ContentHeader(0, 4, message.properties)
    return aio_pika.IncomingMessage(DeliveredMessage(Basic.Deliver(), header, message.body, CHANNEL))


def test_a_copy_has_what_the_sender_set() -> None:
    sent = aio_pika.Message(
        b"body", headers={"k": [1, {"a": "b"}], "n": None}, content_type="image/png", content_encoding="binary",
        priority=7, correlation_id="1", reply_to="results", expiration=60, message_id="m",
        timestamp=datetime.now(timezone.utc),
        type="t", app_id="a", delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )  # fmt: skip
    message = received(sent)
    copied = queues.copy(message, {"a": "why"}, without_expiration=False)
    assert b"body" == copied.body
    assert {**sent.headers, "a": "why"} == copied.headers
    copied.headers = sent.headers
    assert sent.properties.marshal() == copied.properties.marshal()
    assert queues.copy(message, {}).expiration is None


def test_a_copy_leaves_out_what_the_broker_would_act_upon() -> None:
    """CC would send the copy to other queues, and the broker refuses the id of another user."""
    headers: dict[str, Any] = {name: [] for name in ("CC", "BCC", "x-death", "x-delivery-count", "CCC", "k")}
    message = received(aio_pika.Message(b"body", headers=headers, user_id="me"))
    copied = queues.copy(message, {})
    assert ({"CCC": [], "k": []}, None, aio_pika.DeliveryMode.PERSISTENT) == (
        copied.headers, copied.user_id, copied.delivery_mode,
    )  # fmt: skip


@pytest.mark.parametrize("value", [b"\xff", 1e300], ids=["bytes", "a double"])
def test_a_copy_leaves_out_headers_that_can_not_be_encoded(value: Any) -> None:
    message = received(aio_pika.Message(b"body"))
    message.headers.update({"k": value, "n": 1})
    copied = queues.copy(message, {})
    assert {"n": 1} == copied.headers
    assert copied.properties.marshal()


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
