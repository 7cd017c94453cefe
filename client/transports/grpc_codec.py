"""Questions and their answers as the messages of the gRPC API. Must not know a channel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from savedmodel_bakery.client.calls import Classify, Metadata, ModelSpec, Predict, Question
from savedmodel_bakery.client.errors import InvalidResponseError
from savedmodel_bakery.client.results import Prediction, VersionStatus, read_status
from savedmodel_bakery.client.transports.transport import decoding_answer, encoding_request
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.attachments import TensorMessage, parse_message
from savedmodel_bakery.wire.examples import encode_example
from savedmodel_bakery.wire.schema import METHODS, Method


def method_of(question: Question) -> Method:
    """The call that answers a question."""
    if isinstance(question, Predict):
        return METHODS["Predict"]
    if isinstance(question, Classify):
        return METHODS["Classify"]
    return METHODS["GetModelMetadata" if isinstance(question, Metadata) else "GetModelStatus"]


def encode_request(question: Question) -> bytes:
    """Write the request of a question.

    Raises:
        RequestRefusedError: for what can't be sent.
    """
    request = method_of(question).request()
    with encoding_request():
        _fill_spec(request.model_spec, question.spec)
        if isinstance(question, Metadata):
            request.metadata_field.append("signature_def")
        elif isinstance(question, Classify):
            request.model_spec.signature_name = question.signature
            request.input.example_list.examples.extend(encode_example(example) for example in question.examples)
        elif isinstance(question, Predict):
            request = _predict_request(request, question)
        content: bytes = request.SerializeToString()
        return content


def decode_answer(question: Question, content: bytes) -> Any:
    """Decode the response to a question; its arrays don't share memory with `content`.

    Raises:
        InvalidResponseError: where it is none.
    """
    kind = method_of(question).response
    if isinstance(question, Predict):
        response = _parse(partial(parse_message, kind, "outputs"), kind, content)
        return _prediction(question, response)
    response = _parse(kind.FromString, kind, content)
    if isinstance(question, Classify):
        rows = response.result.classifications
        return [[(scored.label, scored.score) for scored in row.classes] for row in rows]
    return _metadata(response) if isinstance(question, Metadata) else _status(response)


def _fill_spec(message: Any, spec: ModelSpec) -> None:
    message.name = spec.name
    if spec.version is not None:
        message.version.value = spec.version
    if spec.label is not None:
        message.version_label = spec.label


def _predict_request(request: Any, question: Predict) -> TensorMessage:
    request.model_spec.signature_name = question.signature
    request.output_filter.extend(question.output_filter)
    declared = question.declared.inputs if question.declared else {}
    message = TensorMessage(request, "inputs")
    for alias, array in question.inputs.items():
        message.add(alias, array, packed=True, dtype=declared[alias].dtype if alias in declared else None)
    return message


def _prediction(question: Predict, response: TensorMessage) -> Prediction:
    with decoding_answer():
        arrays = response.arrays()
    # Those that share memory with the response are read-only, and would keep all of it in memory.
    arrays = {alias: array if array.flags.writeable else array.copy() for alias, array in arrays.items()}
    answered = response.message.model_spec
    return Prediction(
        arrays=arrays,
        model=answered.name or question.spec.name,
        version=answered.version.value if answered.HasField("version") else question.spec.version,
        signature=answered.signature_name or question.signature,
    )


def _metadata(response: Any) -> dict[str, Any]:
    """GetModelMetadata, in the form of the REST API, which shows the content of the Any without its type."""
    signatures = _parse(
        schema.SignatureDefMap.FromString, schema.SignatureDefMap, response.metadata["signature_def"].value
    )
    return {"model_spec": _as_document(response.model_spec), "metadata": {"signature_def": _as_document(signatures)}}


def _status(response: Any) -> list[VersionStatus]:
    return read_status(_as_document(response))


def _parse(read: Callable[[bytes], Any], kind: Any, content: bytes) -> Any:
    try:
        return read(content)
    except DecodeError as exc:
        raise InvalidResponseError(f"{len(content)} bytes came that are no {kind.DESCRIPTOR.full_name}") from exc


def _as_document(message: Any) -> dict[str, Any]:
    return MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
        descriptor_pool=schema.POOL,
    )
