"""What a message asks: the gRPC call that answers it, and how its answer is spelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from savedmodel_bakery.serving.amqp.backends import Backend
from savedmodel_bakery.serving.amqp.errors import Response
from savedmodel_bakery.serving.inference.predict import DEFAULT_SIGNATURE
from savedmodel_bakery.wire import amqp, dtypes, schema
from savedmodel_bakery.wire.attachments import TensorMessage, parse_message
from savedmodel_bakery.wire.json import predict as predict_json
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor

_CALLS = ("Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata", "GetModelStatus")
_BY_TYPE = {METHODS[name].request.DESCRIPTOR.full_name: name for name in _CALLS}


class UndecodableError(StatusError):
    """The body of a message is not what its properties say."""


@dataclass(frozen=True)
class Message:
    """A message as it came; see `wire.amqp`."""

    body: bytes = field(repr=False)
    content_type: str
    type: str = ""
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """A call.

    Attributes:
        name: in `schema.METHODS`.
        content: the serialized request.
        predict: the request of Predict once more, parsed; None for other calls.
        spell: makes an answer of a serialized response.
    """

    name: str
    content: bytes
    predict: TensorMessage | None
    spell: Callable[[bytes], Response]


def read(message: Message, backend: Backend, *, model: str) -> Question:
    """Read a message.

    Args:
        message: as it came.
        backend: knows the signatures, which JSON can't be read without.
        model: whom a message asks that names none.

    Raises:
        UndecodableError: nobody could read it.
        StatusError: it asks for what there isn't.
    """
    media_type = amqp.media_type(message.content_type)
    if media_type == amqp.PROTOBUF:
        return _read_protobuf(message)
    if media_type == amqp.JSON:
        return _read_json(message, backend, model)
    if media_type.startswith(amqp.IMAGE_PREFIX):
        request = _request(message, model)
        image = np.array([message.body, None], object)[:1]  # which numpy would otherwise cut at zero bytes
        alias = amqp.text(message.headers.get(amqp.INPUT, "image"))
        return _predict(request, {alias: Tensor(image, dtypes.STRING)}, row_format=True)
    raise _undecodable(
        f'content type "{message.content_type}" is none that is read; '
        f"those are {amqp.PROTOBUF}, {amqp.JSON} and image/…"
    )


def _read_protobuf(message: Message) -> Question:
    kind = message.type or amqp.DEFAULT_TYPE
    name = _BY_TYPE.get(kind)
    if name is None:
        raise _undecodable(f'type "{kind}" is none that is read; those are {", ".join(_BY_TYPE)}')
    method = METHODS[name]
    try:
        predict = parse_message(method.request, "inputs", message.body) if name == "Predict" else None
        if predict is None:
            method.request.FromString(message.body)
    except DecodeError:
        raise _undecodable(f"{len(message.body)} bytes came that are no {kind}") from None
    answer_type = method.response.DESCRIPTOR.full_name
    return Question(name, message.body, predict, lambda response: Response(response, amqp.PROTOBUF, answer_type))


def _read_json(message: Message, backend: Backend, model: str) -> Question:
    try:
        parsed = predict_json.decode_request(message.body)
    except StatusError as error:
        raise _undecodable(error.message) from error
    request = _request(message, model)
    signature = parsed.signature_name or request.model_spec.signature_name
    request.model_spec.signature_name = signature
    infos = _input_types(backend, request.model_spec, signature)
    inputs, row_format = predict_json.decode_inputs(parsed.document, infos, signature)
    return _predict(request, inputs, row_format=row_format)


def _request(message: Message, model: str) -> Any:
    """A PredictRequest without inputs, of what the headers say.

    Raises:
        StatusError: INVALID_ARGUMENT where they contradict each other, or a version is none.
    """
    headers = {name: amqp.text(value) for name, value in message.headers.items()}
    request = schema.PredictRequest()
    spec = request.model_spec
    spec.name = headers.get(amqp.MODEL, model)
    spec.signature_name = headers.get(amqp.SIGNATURE) or DEFAULT_SIGNATURE
    if amqp.VERSION in headers and amqp.LABEL in headers:
        raise invalid_argument("version and label are given; give one of them")
    if amqp.LABEL in headers:
        spec.version_label = headers[amqp.LABEL]
    elif amqp.VERSION in headers:
        version = headers[amqp.VERSION]
        if not (version.isascii() and version.isdecimal() and int(version) < 2**63):
            raise invalid_argument(f'version "{version}" is none; versions are 0 to {2**63 - 1}')
        spec.version.value = int(version)
    return request


def _input_types(backend: Backend, spec: Any, signature: str) -> dict[str, dtypes.DType]:
    """Element types of a signature's inputs, in the version that is asked."""
    request = schema.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.CopyFrom(spec)
    content = backend.call("GetModelMetadata", request.SerializeToString())
    metadata = schema.GetModelMetadataResponse.FromString(content).metadata
    signatures = schema.SignatureDefMap.FromString(metadata["signature_def"].value).signature_def
    if signature not in signatures:
        raise invalid_argument(f'Serving signature name: "{signature}" not found in signature def')
    return {alias: dtypes.of_number(info.dtype) for alias, info in signatures[signature].inputs.items()}


def _predict(request: Any, inputs: Mapping[str, Tensor], *, row_format: bool) -> Question:
    predict = TensorMessage(request, "inputs")
    for alias, (array, dtype, _) in inputs.items():
        predict.add(alias, array, packed=True, dtype=dtype)

    def spell(content: bytes) -> Response:
        response = parse_message(schema.PredictResponse, "outputs", content)
        types = response.dtypes()
        outputs = {alias: Tensor(array, types[alias]) for alias, array in response.arrays().items()}
        body = predict_json.encode_response(outputs, row_format=row_format)
        return Response(body, amqp.JSON)

    return Question("Predict", predict.SerializeToString(), predict, spell)


def _undecodable(why: str) -> UndecodableError:
    error = invalid_argument(why)
    return UndecodableError(error.code, error.message)
