"""Questions and answers as AMQP messages: which property and which header says what. No I/O.

A question is one message, published to the worker's queue:

    content_type     what the body is:
                       application/x-protobuf   a request of the gRPC API; `type` is its full name, by default
                                                tensorflow.serving.PredictRequest
                       application/json         the body of the REST API's `:predict`
                       image/jpeg, image/png …  one image file
                     parameters, as `; charset=utf-8`, are passed over
    headers          what a protobuf says itself, and all may be missing: `model`, `version` or `label`, `signature`,
                     and for an image `input`, the alias of the input that takes it, by default `image`
    reply_to         the queue that the answer goes to; correlation_id comes back with it
    delivery_mode    2, so that it outlives the broker

The answer has the body that its question asks for: the response message, or the JSON that REST would answer (for an
image that of one row). Its header `grpc-status` is the canonical code, 0 where it succeeded, and `grpc-message` says
why not; the names are those of gRPC's trailers (github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md). The same
answer may come more than once, as whatever is not acknowledged is delivered again: the first one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from savedmodel_bakery.wire.status import Code, StatusError

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
IMAGE_PREFIX = "image/"
DEFAULT_TYPE = "tensorflow.serving.PredictRequest"

MODEL, VERSION, LABEL, SIGNATURE, INPUT = "model", "version", "label", "signature", "input"
STATUS, MESSAGE = "grpc-status", "grpc-message"

REASON = "x-reason"
"""Header of a dead letter: why a worker gave it up. What the broker itself gave up has x-first-death-reason."""

DELIVERY_COUNT = "x-delivery-count"
"""Header of the broker's: how often a quorum queue took a message back that was not acknowledged."""

QUORUM_ARGUMENTS: Mapping[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": 2**31 - 1}
"""Arguments of a queue for results or dead letters, which may be looked at as often as one likes: a quorum queue takes
each look for a delivery that failed, and from RabbitMQ 4.0 on drops what has 20 of them unless another limit is set
(rabbitmq.com/docs/quorum-queues#poison-message-handling); this one, which RabbitMQ 3 takes too, is never reached."""

DEFAULT_QUEUE = "bakery.predict"
MAX_MESSAGE_BYTES = 128 << 20
"""RabbitMQ's own limit (max_message_size); a larger message would end the connection."""


def status_headers(error: StatusError | None) -> dict[str, Any]:
    """Headers of an answer."""
    if error is None:
        return {STATUS: int(Code.OK)}
    return {STATUS: int(error.code), MESSAGE: error.message}


def read_status(headers: Mapping[str, Any]) -> StatusError | None:
    """Why there is no answer; None where there is one.

    Raises:
        ValueError: the headers are none of an answer.
    """
    code = Code(int(headers.get(STATUS, -1)))
    return None if code is Code.OK else StatusError(code, text(headers.get(MESSAGE, "")))


def media_type(content_type: str) -> str:
    """A content type without its parameters, in lower case (RFC 9110, 8.3.1)."""
    return content_type.partition(";")[0].strip().lower()


def text(value: object) -> str:
    """A header's value as text, in which bytes may come that are none."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
