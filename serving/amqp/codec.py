"""Messages to calls, and predictions to responses. Does no I/O; `wire.amqp` describes the messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from savedmodel_bakery.serving.inference.predict import DEFAULT_SIGNATURE, SignatureNotFoundError
from savedmodel_bakery.serving.models.registry import MAX_VERSION, parse_version
from savedmodel_bakery.serving.prediction_service import require_spec
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.dtypes import STRING, DType
from savedmodel_bakery.wire.json import predict as predict_json
from savedmodel_bakery.wire.json import predict_response
from savedmodel_bakery.wire.json.limits import ParseLimits
from savedmodel_bakery.wire.messages import ModelSpec, parse_predict_request
from savedmodel_bakery.wire.parsed_size import parsed_size
from savedmodel_bakery.wire.responses import make_predict_response
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor

_METHOD_NAMES = ("Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata", "GetModelStatus")
_METHOD_BY_TYPE = {METHODS[name].request.DESCRIPTOR.full_name: name for name in _METHOD_NAMES}
_PREDICT_RESPONSE = METHODS["Predict"].response.DESCRIPTOR.full_name


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
    """The response to one message; see `wire.amqp`.

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


class Prediction(NamedTuple):
    """The result of a Predict.

    Attributes:
        spec: the model, version and signature that computed it.
        outputs: by alias.
        content: the serialized PredictResponse of a request that a server received unchanged; otherwise None.
    """

    spec: ModelSpec
    outputs: Mapping[str, Tensor]
    content: bytes | None = None


class Predict(NamedTuple):
    """A decoded Predict.

    Attributes:
        spec: the model, version and signature to run.
        inputs: by alias; reading one may raise StatusError.
        output_filter: aliases of the outputs to return; empty for all.
        encode: encodes the prediction in the format of the message; raises StatusError.
        content: the serialized PredictRequest, if it was one and was not joined with others.
    """

    spec: ModelSpec
    inputs: Mapping[str, Tensor]
    output_filter: Sequence[str]
    encode: Callable[[Prediction], Response]
    content: bytes | None = None


class OtherCall(NamedTuple):
    """A call of another method.

    Attributes:
        method: name in `schema.METHODS`.
        content: the serialized request.
        message: the request as protobuf message.
    """

    method: str
    content: bytes
    message: Any

    def encode(self, content: bytes) -> Response:
        """Make the response from a serialized response message."""
        return Response(content, amqp.PROTOBUF, METHODS[self.method].response.DESCRIPTOR.full_name)


InputDTypes = Callable[[ModelSpec], Mapping[str, DType]]
"""Returns the element types of a signature's inputs, by alias; raises StatusError."""


def decode(
    message: Message,
    input_dtypes: InputDTypes,
    model_name: str,
    limits: ParseLimits,
    charge: Callable[[int], None],
) -> Predict | OtherCall:
    """Decode a message.

    Args:
        message: as delivered.
        input_dtypes: types the values of a JSON body.
        model_name: model of messages that name none.
        limits: of parsing a JSON body.
        charge: is called with the bytes of memory that parsing a protobuf body takes; may raise StatusError.

    Raises:
        UndecodableError: no worker could decode the message.
        StatusError: the message names an unknown model, version or signature, its values don't fit the signature, or a
            JSON body exceeds the limits.
    """
    media_type = amqp.media_type(message.content_type)
    if media_type == amqp.PROTOBUF:
        return _decode_protobuf(message, charge)
    if media_type == amqp.JSON:
        return _decode_json(message, input_dtypes, model_name, limits)
    if media_type.startswith(amqp.IMAGE_PREFIX):
        return _decode_image(message, model_name)
    raise UndecodableError(
        f'unsupported content type "{message.content_type}": must be {amqp.PROTOBUF}, {amqp.JSON} or image/…'
    )


def _decode_protobuf(message: Message, charge: Callable[[int], None]) -> Predict | OtherCall:
    type_name = message.type or amqp.DEFAULT_TYPE
    method = _METHOD_BY_TYPE.get(type_name)
    if method is None:
        raise UndecodableError(f'unsupported type "{type_name}": must be one of {", ".join(_METHOD_BY_TYPE)}')
    charge(parsed_size(METHODS[method].request, message.body))
    try:
        if method == "Predict":
            spec, inputs, output_filter = parse_predict_request(message.body)
            return Predict(require_spec(spec), inputs, output_filter, _encode_protobuf, message.body)
        return OtherCall(method, message.body, METHODS[method].request.FromString(message.body))
    except DecodeError:
        raise UndecodableError(f"the body ({len(message.body)} bytes) is not a valid {type_name}") from None


def _decode_json(message: Message, input_dtypes: InputDTypes, model_name: str, limits: ParseLimits) -> Predict:
    try:
        body = predict_json.decode_request(message.body, limits)
    except StatusError as error:
        if error.code is not Code.INVALID_ARGUMENT:  # a limit
            raise
        raise UndecodableError(error.message) from error
    spec = _read_spec(message.headers, model_name, signature_name=body.signature_name)
    try:
        dtypes = input_dtypes(spec)
    except SignatureNotFoundError as error:
        raise predict_json.signature_not_found(error.name) from None
    inputs, is_row_format = predict_json.decode_inputs(body.document, dtypes, spec.signature_name)
    return Predict(spec, inputs, (), lambda prediction: _encode_json(prediction, is_row_format))


def _decode_image(message: Message, model_name: str) -> Predict:
    """Decode an image file: one row of the input that the headers name."""
    image = np.empty(1, object)
    image[0] = message.body
    alias = amqp.header_text(message.headers.get(amqp.INPUT, "image"))
    inputs = {alias: Tensor(image, STRING)}
    return Predict(
        _read_spec(message.headers, model_name), inputs, (), lambda prediction: _encode_json(prediction, True)
    )


def _read_spec(headers: Mapping[str, Any], model_name: str, *, signature_name: str = "") -> ModelSpec:
    """Read model, version or label, and signature from the headers; `signature_name` takes precedence.

    Raises:
        StatusError: INVALID_ARGUMENT if there are both version and label, or the version is invalid.
    """
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


def _encode_protobuf(prediction: Prediction) -> Response:
    content = prediction.content
    if content is None:
        content = make_predict_response(prediction.spec, prediction.outputs, packed=False).SerializeToString()
    return Response(content, amqp.PROTOBUF, _PREDICT_RESPONSE)


def _encode_json(prediction: Prediction, is_row_format: bool) -> Response:
    return Response(predict_response.encode_response(prediction.outputs, row_format=is_row_format), amqp.JSON)
