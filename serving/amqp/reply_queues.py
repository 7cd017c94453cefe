"""Which queues a worker may send replies to. Does no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

GENERATED_PREFIXES = ("amq.", "amq_")
"""Start names that the broker or a robust connection of aio-pika has generated; such queues end with their callers."""

DEFAULT_PATTERNS = ("results*",)

_GENERATED = [f"{prefix}*" for prefix in GENERATED_PREFIXES]


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
        patterns: the queues that are allowed beside those with generated names; see `parse_pattern`.
    """
    if not reply_to:
        return invalid_argument("the message has no reply_to")
    if reply_to.startswith(GENERATED_PREFIXES) or any(_matches(reply_to, pattern) for pattern in patterns):
        return None
    return StatusError(
        Code.PERMISSION_DENIED,
        f'reply_to "{reply_to}" is not allowed: must be {" or ".join([*_GENERATED, *patterns])} (--result-queue)',
    )


def _matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
