"""Encodes calls as the messages of the gRPC API and decodes the responses. Sends nothing."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.client.calls import Call, Classify, Metadata, Predict, Regress, Status, read_status
from savedmodel_bakery.client.transports.transport import decoding_response, detach, encoding_request
from savedmodel_bakery.errors import InvalidResponseError
from savedmodel_bakery.wire import messages, schema
from savedmodel_bakery.wire.attachments import TensorMessage, parse_message
from savedmodel_bakery.wire.examples import encode_example
from savedmodel_bakery.wire.schema import METHODS, Method

_METHODS = {
    Predict: "Predict",
    Classify: "Classify",
    Regress: "Regress",
    Metadata: "GetModelMetadata",
    Status: "GetModelStatus",
}


def method_of(call: Call) -> Method:
    """Return the method of the gRPC API for a call."""
    return METHODS[_METHODS[type(call)]]


def exchange(call: Call) -> Generator[Call, Any, Any]:
    """Return the flow of a call's requests: the call itself is the only one."""
    return (yield call)


def encode_request(call: Call) -> bytes:
    """Encode the request of a call."""
    request = method_of(call).request()
    with encoding_request():
        name, version, label = call.spec.name, call.spec.version, call.spec.label
        signature_name = call.signature if isinstance(call, Predict | Classify | Regress) else ""
        messages.write_spec(request.model_spec, messages.ModelSpec(name, version, label, signature_name))
        if isinstance(call, Metadata):
            request.metadata_field.append(messages.SIGNATURE_FIELD)
        elif isinstance(call, Classify | Regress):
            request.input.example_list.examples.extend(encode_example(example) for example in call.examples)
        elif isinstance(call, Predict):
            request.output_filter.extend(call.output_filter)
            declared = call.declared.inputs if call.declared else {}
            request = TensorMessage(request, "inputs")
            for alias, array in call.inputs.items():
                request.add(alias, array, packed=True, dtype=declared[alias].dtype if alias in declared else None)
        content: bytes = request.SerializeToString()
        return content


def decode_response(call: Call, content: bytes) -> Any:
    """Decode the response to a call; its arrays do not share memory with `content`."""
    response_type = method_of(call).response
    try:
        if isinstance(call, Predict):
            return _prediction(call, parse_message(response_type, "outputs", content))
        response = response_type.FromString(content)
        if isinstance(call, Classify):
            rows = response.result.classifications
            return [[(scored.label, scored.score) for scored in row.classes] for row in rows]
        if isinstance(call, Regress):
            return [regression.value for regression in response.result.regressions]
        return _metadata(response) if isinstance(call, Metadata) else read_status(_as_document(response))
    except DecodeError as exc:
        name = response_type.DESCRIPTOR.full_name
        raise InvalidResponseError(f"the response of {len(content)} bytes is not a valid {name}") from exc


def _prediction(call: Predict, response: TensorMessage) -> Prediction:
    with decoding_response():
        arrays = response.arrays()
    spec = response.message.model_spec
    return Prediction(
        arrays={alias: detach(array) for alias, array in arrays.items()},
        model=spec.name or call.spec.name,
        version=spec.version.value if spec.HasField("version") else call.spec.version,
        signature=spec.signature_name or call.signature,
    )


def _metadata(response: Any) -> dict[str, Any]:
    """Return the metadata in the form of the REST API, which shows the content of the Any without its type."""
    signatures = schema.SignatureDefMap.FromString(response.metadata[messages.SIGNATURE_FIELD].value)
    return {"model_spec": _as_document(response.model_spec), "metadata": {"signature_def": _as_document(signatures)}}


def _as_document(message: Any) -> dict[str, Any]:
    return MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
        descriptor_pool=schema.POOL,
    )
