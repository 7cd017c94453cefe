"""Messages to calls, and predictions and errors to responses. Does no I/O; `wire.amqp` describes the messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from savedmodel_bakery.client.transports.failures import SHUTTING_DOWN
from savedmodel_bakery.serving.inference.predict import DEFAULT_SIGNATURE, SignatureNotFoundError, input_dtypes
from savedmodel_bakery.serving.models.registry import MAX_VERSION, parse_version
from savedmodel_bakery.wire import amqp, schema
from savedmodel_bakery.wire.attachments import parse_message
from savedmodel_bakery.wire.dtypes import STRING
from savedmodel_bakery.wire.encoding import parsed_size
from savedmodel_bakery.wire.json import predict as predict_json
from savedmodel_bakery.wire.json import predict_response
from savedmodel_bakery.wire.json.decode import parse_document
from savedmodel_bakery.wire.json.parser import ParseLimits
from savedmodel_bakery.wire.messages import ModelSpec, Prediction, PredictRequest
from savedmodel_bakery.wire.responses import encode_error, make_predict_response
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument, truncate_message
from savedmodel_bakery.wire.tensors import Tensor

_METHOD_NAMES = ("Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata", "GetModelStatus")
_METHOD_BY_TYPE = {METHODS[name].request.DESCRIPTOR.full_name: name for name in _METHOD_NAMES}
_TENSOR_FIELDS = {schema.PredictRequest: "inputs", schema.PredictResponse: "outputs"}


class UndecodableError(StatusError):
    """The body of a message does not match its properties."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INVALID_ARGUMENT, message)


@dataclass(frozen=True)
class Message:
    """The body and properties of a delivered message; see `wire.amqp`."""

    body: bytes = field(repr=False)
    content_type: str
    type: str = ""
    headers: Mapping[str, Any] = field(default_factory=dict)


class Response(NamedTuple):
    """The response to one message; see `wire.amqp`."""

    body: bytes  # the encoded result; for an error empty, or `{"error": …}`
    content_type: str  # media type of the body
    type: str | None = None  # full name of the protobuf message
    error: StatusError | None = None  # why the request failed; None if it succeeded
    dead_letter: bool = False  # whether the message must be dead-lettered, because no worker could ever process it


class Call(NamedTuple):
    """A decoded message."""

    method: str  # name in `schema.METHODS`
    request: bytes | PredictRequest  # serialized, as it came; or read from JSON or an image
    # makes the response to the message from the serialized response, or the Prediction for a PredictRequest, after it
    # has charged the bytes that it takes; raises StatusError or DecodeError
    encode: Callable[[Any, Charge], Response]


Charge = Callable[[int], None]
"""Takes bytes of memory for a call; raises StatusError if there are not enough."""

Signatures = Callable[[ModelSpec], Mapping[str, Any]]
"""Returns the SignatureDefs of a model, by name; raises StatusError."""


def decode(message: Message, signatures: Signatures, model_name: str, limits: ParseLimits, charge: Charge) -> Call:
    """Decode a message; raises UndecodableError if no worker could, and StatusError if it does not fit the model.

    `signatures` type the values of a JSON body; `model_name` is the model of messages that name none; other bodies are
    charged for.
    """
    media_type = amqp.media_type(message.content_type)
    if media_type == amqp.PROTOBUF:
        return _decode_protobuf(message, charge)
    if media_type == amqp.JSON:
        return _decode_json(message, signatures, model_name, limits)
    if media_type.startswith(amqp.IMAGE_PREFIX):
        return _decode_image(message, model_name, charge)
    raise UndecodableError(
        f'unsupported content type "{message.content_type}": must be {amqp.PROTOBUF}, {amqp.JSON} or image/…'
    )


def _decode_protobuf(message: Message, charge: Charge) -> Call:
    type_name = message.type or amqp.DEFAULT_TYPE
    method = _METHOD_BY_TYPE.get(type_name)
    if method is None:
        raise UndecodableError(f'unsupported type "{type_name}": must be one of {", ".join(_METHOD_BY_TYPE)}')
    charge(len(message.body) + parsed_size(METHODS[method].request, message.body))
    try:
        _check_protobuf(METHODS[method].request, message.body)
    except DecodeError:
        raise UndecodableError(f"the body ({len(message.body)} bytes) is not a valid {type_name}") from None
    return Call(method, message.body, partial(_encode_protobuf, METHODS[method].response))


def _decode_json(message: Message, signatures: Signatures, model_name: str, limits: ParseLimits) -> Call:
    try:
        document, signature_name = parse_document(message.body, limits)
    except StatusError as error:
        if error.code is not Code.INVALID_ARGUMENT:  # a limit
            raise
        raise UndecodableError(error.message) from error
    spec = _read_spec(message.headers, model_name, signature_name=signature_name)
    try:
        dtypes = input_dtypes(signatures(spec), spec.signature_name)
    except SignatureNotFoundError as error:
        raise predict_json.signature_not_found(error.name) from None
    inputs, is_row_format = predict_json.decode_inputs(document, dtypes, spec.signature_name)
    return Call("Predict", PredictRequest(spec, inputs), partial(_encode_json, is_row_format))


def _decode_image(message: Message, model_name: str, charge: Charge) -> Call:
    """Decode an image file: one row of the input that the headers name."""
    charge(len(message.body))
    image = np.empty(1, object)
    image[0] = message.body
    alias = amqp.header_text(message.headers.get(amqp.INPUT, "image"))
    request = PredictRequest(_read_spec(message.headers, model_name), {alias: Tensor(image, STRING)})
    return Call("Predict", request, partial(_encode_json, True))


def _read_spec(headers: Mapping[str, Any], model_name: str, *, signature_name: str = "") -> ModelSpec:
    """Read model, version or label, and signature from the headers; `signature_name` takes precedence."""
    names = (amqp.MODEL, amqp.VERSION, amqp.LABEL, amqp.SIGNATURE)
    texts = {name: amqp.header_text(headers[name]) for name in names if name in headers}
    version = texts.get(amqp.VERSION)
    if version is not None and amqp.LABEL in texts:
        raise invalid_argument("the headers version and label exclude each other: set one of them")
    number = None if version is None else parse_version(version)
    if version is not None and number is None:
        raise invalid_argument(f'invalid version "{version}": must be between 0 and {MAX_VERSION}')
    return ModelSpec(
        name=texts.get(amqp.MODEL, model_name),
        version=number,
        label=texts.get(amqp.LABEL),
        signature_name=signature_name or texts.get(amqp.SIGNATURE) or DEFAULT_SIGNATURE,
    )


def _encode_protobuf(message_class: Any, result: bytes | Prediction, _charge: Charge) -> Response:
    if isinstance(result, Prediction):  # the request was joined with others
        content = make_predict_response(*result, packed=False).SerializeToString()
    else:
        content = result
        _check_protobuf(message_class, content)
    return Response(content, amqp.PROTOBUF, message_class.DESCRIPTOR.full_name)


def _encode_json(is_row_format: bool, prediction: Prediction, charge: Charge) -> Response:
    charge(predict_response.response_size(prediction.outputs))
    return Response(predict_response.encode_response(prediction.outputs, row_format=is_row_format), amqp.JSON)


def _check_protobuf(message_class: Any, content: bytes) -> None:
    """Check that a message can be parsed, without a copy of its large tensors; raises DecodeError."""
    field = _TENSOR_FIELDS.get(message_class)
    if field is None:
        message_class.FromString(content)
    else:
        parse_message(message_class, field, content)


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
