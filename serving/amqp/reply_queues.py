"""Which queues a worker may send replies to. Does no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

DEFAULT_PATTERNS = ("results*",)

_GENERATED = ("amq.*", "amq_*")
"""Names that the broker or a robust connection of aio-pika has generated; such queues end with their callers."""


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
    allowed = [*_GENERATED, *patterns]
    if _matches_any(reply_to, allowed):
        return None
    return StatusError(
        Code.PERMISSION_DENIED,
        f'reply_to "{reply_to}" is not allowed: must be {" or ".join(allowed)} (--result-queue)',
    )


def is_generated(name: str) -> bool:
    """Return whether the broker or a client has generated the name of a queue, which ends with its caller."""
    return _matches_any(name, _GENERATED)


def _matches_any(name: str, patterns: Sequence[str]) -> bool:
    return any(name.startswith(text[:-1]) if text.endswith("*") else name == text for text in patterns)
