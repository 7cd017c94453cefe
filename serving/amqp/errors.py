"""Errors to responses, and the errors that the worker adds to those of the model. Does no I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence

from savedmodel_bakery.client.transports.failures import SHUTTING_DOWN
from savedmodel_bakery.serving.amqp.codec import Response
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.responses import encode_error
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument, truncate_message


def encode_failure(error: StatusError, content_type: str, *, dead_letter: bool = False) -> Response:
    """Make the response for a failed request of this content type.

    Its error is shortened and made valid UTF-8, because it is sent in a header; a JSON body has the whole text.
    """
    short = StatusError(error.code, truncate_message(error.text), retry_after_s=error.retry_after_s)
    if amqp.media_type(content_type) == amqp.PROTOBUF:
        return Response(b"", amqp.PROTOBUF, error=short, dead_letter=dead_letter)
    return Response(encode_error(error.message), amqp.JSON, error=short, dead_letter=dead_letter)


def is_temporary(error: StatusError) -> bool:
    """Return whether a later attempt may succeed: the model server is away, or busy and allows another one."""
    return is_away(error) or (error.retry_after_s is not None and math.isfinite(error.retry_after_s))


def is_away(error: StatusError) -> bool:
    """Return whether the model server is unavailable or shuts down."""
    return error.code in SHUTTING_DOWN


def delivery_limit_reached(count: int, timeout: str) -> StatusError:
    """Return the error after `count` deliveries without a reply; `timeout` is that of `Consumer`."""
    cause = f", or take longer than the broker allows ({timeout})" if timeout else ""
    return StatusError(
        Code.ABORTED,
        f"the message was delivered {count} times without a reply; it may crash workers{cause}, and was moved to the "
        "dead-letter queue",
    )


_GENERATED = ("amq.*", "amq_*")
"""Names that the broker or a robust connection of aio-pika has generated; such queues end with their callers."""


def check_reply_queue(reply_to: str | None, patterns: Sequence[str]) -> StatusError | None:
    """Return why a message can have no reply; None if its reply may be sent.

    Allowed are queues with generated names and those that match one of the patterns: a name, or a prefix and `*`.
    """
    if not reply_to:
        return invalid_argument("the message has no reply_to")
    allowed = [*_GENERATED, *patterns]
    if _matches_any(reply_to, allowed):
        return None
    return StatusError(
        Code.PERMISSION_DENIED, f'reply_to "{reply_to}" is not allowed: must be {" or ".join(allowed)} (--result-queue)'
    )


def is_generated_queue(name: str) -> bool:
    """Return whether the broker or a client has generated the name of a queue, which ends with its caller."""
    return _matches_any(name, _GENERATED)


def _matches_any(name: str, patterns: Sequence[str]) -> bool:
    return any(name.startswith(text[:-1]) if text.endswith("*") else name == text for text in patterns)
