"""Which queues a worker may send replies to."""

from __future__ import annotations

import pytest

from savedmodel_bakery.serving.amqp import reply_queues
from savedmodel_bakery.wire.status import Code

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
    assert NAMES[name] == (reply_queues.check(name, BOTH) is None)
    assert reply_queues.check(name, ["*"]) is None


def test_the_reason_names_the_queue_and_what_is_allowed() -> None:
    error = reply_queues.check("payroll", BOTH)
    assert error is not None
    expected = 'reply_to "payroll" is not allowed: must be amq.* or amq_* or labels or results* (--result-queue)'
    assert (Code.PERMISSION_DENIED, expected) == (error.code, error.message)


@pytest.mark.parametrize("pattern", ["", "a*b", "**", "*a"])
def test_a_pattern_is_a_name_or_a_prefix(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"must be NAME or PREFIX\*"):
        reply_queues.parse_pattern(pattern)
