"""The format of requests and responses as AMQP messages: properties, headers and bodies. Does no I/O.

A request is one message, published to the queue of the workers:

    content_type     the format of the body; parameters such as `; charset=utf-8` are ignored:
                       application/x-protobuf   a request message of the gRPC API; the property `type` is its full
                                                name, by default tensorflow.serving.PredictRequest
                       application/json         the body of a REST `:predict` request
                       image/jpeg, image/png …  an image file
    headers          for JSON and images, all optional: `model`, `version` or `label`, `signature`, and for an image
                     `input`, the alias of the input that takes it (default `image`). A protobuf message has these
                     in its body
    reply_to         the queue for the response: one that the broker has named (amq.…), or one that the worker allows
    correlation_id   copied to the response
    delivery_mode    2, so that the message survives a restart of the broker

A response has a body in the format of its request: the response message, or the JSON that the REST API returns (for an
image, in row format). Its header `grpc-status` is the canonical status code, 0 for success, and `grpc-message` the
error message; gRPC's trailers have the same names (github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md). Messages
that are not acknowledged are delivered again, so a response may arrive more than once: clients use the first.
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
"""Header of a dead letter: why a worker rejected it. Messages rejected by the broker have x-first-death-reason."""

DELIVERY_COUNT = "x-delivery-count"
"""Header set by a quorum queue: how often the message was returned to it without an acknowledgement."""

DELIVERIES, ATTEMPTS = "x-deliveries", "x-attempts"
"""Headers of a message in the retry queue: earlier deliveries without a reply, and attempts of which a worker has seen
that the model server was unavailable."""

QUORUM_ARGUMENTS: Mapping[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": 2**31 - 1}
"""Arguments of a queue for results or dead letters, whose messages may be read and returned any number of times.

A quorum queue counts each return as a failed delivery. RabbitMQ 4.0 and later drop a message after 20 of them, unless
another limit is set (rabbitmq.com/docs/quorum-queues#poison-message-handling). This limit is never reached; RabbitMQ 3
accepts it too.
"""

DEFAULT_QUEUE = "bakery.predict"
MAX_MESSAGE_BYTES = 128 << 20
"""RabbitMQ's default limit (max_message_size); it closes the connection on a larger message."""


def encode_status(error: StatusError | None) -> dict[str, Any]:
    """Return the status headers of a response; `error` is None for success."""
    if error is None:
        return {STATUS: int(Code.OK)}
    return {STATUS: int(error.code), MESSAGE: error.message}


def decode_status(headers: Mapping[str, Any]) -> StatusError | None:
    """Return the error that a response reports, or None for success."""
    code = Code(int(headers.get(STATUS, -1)))
    return None if code is Code.OK else StatusError(code, header_text(headers.get(MESSAGE, "")))


def media_type(content_type: str) -> str:
    """Return a content type without its parameters, in lower case (RFC 9110, 8.3.1)."""
    return content_type.partition(";")[0].strip().lower()


def header_text(value: object) -> str:
    """Return the value of a header as text; bytes that are not valid UTF-8 are replaced."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
