"""Which queues a worker may send replies to. Does no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

BROKER_PREFIX = "amq."
"""Starts names that the broker has generated; such a queue is deleted with its consumer."""

DEFAULT_PATTERNS = ("results*",)


def parse_pattern(text: str) -> str:
    """Check a pattern: a queue's name, or a prefix and `*`.

    Raises:
        ValueError: it is neither.
    """
    if not text or "*" in text[:-1]:
        raise ValueError(f'invalid pattern "{text}": must be NAME or PREFIX*')
    return text


def check(reply_to: str | None, patterns: Sequence[str]) -> StatusError | None:
    """Return why a message can have no reply; None if its reply may be sent.

    Args:
        reply_to: the property of the message.
        patterns: the queues that are allowed beside those that the broker has named; see `parse_pattern`.
    """
    if not reply_to:
        return invalid_argument("the message has no reply_to")
    if reply_to.startswith(BROKER_PREFIX) or any(_matches(reply_to, pattern) for pattern in patterns):
        return None
    return StatusError(
        Code.PERMISSION_DENIED,
        f'reply_to "{reply_to}" is not allowed: must be {BROKER_PREFIX}* or {" or ".join(patterns)} (--result-queue)',
    )


def _matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
