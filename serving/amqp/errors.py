"""What a caller hears of errors, and what a dead letter says of its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from savedmodel_bakery.serving.grpc.errors import cut
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.json import status as status_json
from savedmodel_bakery.wire.status import Code, StatusError


@dataclass(frozen=True)
class Answer:
    """One answer; the properties of its message are those of `wire.amqp`.

    Attributes:
        body: empty, or `{"error": …}`, where there is an error.
        error: why there is no better answer.
        dead: whether the question goes to the dead letters too, as no worker will ever make anything of it.
    """

    body: bytes
    content_type: str
    type: str | None = None
    error: StatusError | None = None
    dead: bool = False

    @property
    def headers(self) -> dict[str, Any]:
        """Headers of the message."""
        return amqp.status_headers(self.error)


def refusal(error: StatusError, content_type: str, *, dead: bool = False) -> Answer:
    """The answer to a question of this content type that was refused; headers have room for so many words only."""
    short = StatusError(error.code, cut(error.message))
    if amqp.media_type(content_type) == amqp.PROTOBUF:
        return Answer(b"", amqp.PROTOBUF, error=short, dead=dead)
    return Answer(status_json.encode_error(error.message), amqp.JSON, error=short, dead=dead)


def too_large(answer: Answer) -> StatusError | None:
    """Why an answer can't be sent; None where it can."""
    if len(answer.body) <= amqp.MAX_MESSAGE_BYTES:
        return None
    return StatusError(
        Code.RESOURCE_EXHAUSTED,
        f"the answer takes {len(answer.body)} bytes; a message of RabbitMQ holds {amqp.MAX_MESSAGE_BYTES} at most",
    )


def exhausted(count: int) -> StatusError:
    """What callers hear, and dead letters say, of a question that was delivered so often in vain."""
    return StatusError(
        Code.ABORTED,
        f"the question was delivered {count} times and never answered, as if it ended its workers; "
        "it lies among the dead letters",
    )
