"""Responses to messages, and which errors they carry."""

from __future__ import annotations

from dataclasses import dataclass

from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.json import status as status_json
from savedmodel_bakery.wire.status import Code, StatusError, truncate_message


@dataclass(frozen=True)
class Response:
    """The response to one message; `wire.amqp` describes its properties.

    Attributes:
        body: the encoded result; for an error empty, or `{"error": …}`.
        content_type: media type of the body.
        type: full name of the protobuf message.
        error: why the request failed; None if it succeeded.
        dead_letter: whether the message must be dead-lettered, because no worker could ever process it.
    """

    body: bytes
    content_type: str
    type: str | None = None
    error: StatusError | None = None
    dead_letter: bool = False


def error_response(error: StatusError, content_type: str, *, dead_letter: bool = False) -> Response:
    """Make the response for a failed request of this content type; headers carry a shortened message."""
    short = StatusError(error.code, truncate_message(error.message))
    if amqp.media_type(content_type) == amqp.PROTOBUF:
        return Response(b"", amqp.PROTOBUF, error=short, dead_letter=dead_letter)
    return Response(status_json.encode_error(error.message), amqp.JSON, error=short, dead_letter=dead_letter)


def response_too_large(response: Response) -> StatusError | None:
    """Return the error for a response that exceeds the broker's message size."""
    if len(response.body) <= amqp.MAX_MESSAGE_BYTES:
        return None
    return StatusError(
        Code.RESOURCE_EXHAUSTED,
        f"the response has {len(response.body)} bytes; a RabbitMQ message may have at most {amqp.MAX_MESSAGE_BYTES}",
    )


def delivery_limit_reached(count: int) -> StatusError:
    """Return the error for a message that was delivered `count` times without a reply."""
    return StatusError(
        Code.ABORTED,
        f"the message was delivered {count} times without a reply; it may crash workers, and was moved to the "
        "dead-letter queue",
    )
