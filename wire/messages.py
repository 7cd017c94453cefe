"""Protobuf messages of PredictionService and ModelService to plain values, and back. Does no I/O.

Shared by everything that receives these messages: gRPC, AMQP and the warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from savedmodel_bakery.wire import dtypes, schema
from savedmodel_bakery.wire.attachments import DetachedTensor, parse_message
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.examples import ExamplesWithContext
from savedmodel_bakery.wire.status import invalid_argument
from savedmodel_bakery.wire.tensors import Tensor, decode_tensor, read_shape

SIGNATURE_FIELD = "signature_def"
"""The only metadata field that exists."""


class ModelSpec(NamedTuple):
    """The model, version and signature that a request is for, or that a response is from."""

    name: str  # may be empty in a request
    version: int | None
    label: str | None  # None in responses
    signature_name: str  # empty in a request for the default signature


ClassesAndScores = tuple[np.ndarray | None, np.ndarray | None]
"""Labels (bytes, object [examples, classes]) and scores (float32 [examples, classes]); one of them may be missing."""


class TensorMap(Mapping[str, Tensor]):
    """The tensors of a PredictRequest by alias; each is decoded, and checked, when it is read.

    Clear `attachments`, the large tensors, to free their memory once nothing else refers to it. `before_filling` is
    called with the element type and the shape that a tensor declares, before its values are filled up to that shape; it
    may raise StatusError.
    """

    def __init__(self, protos: Mapping[str, Any], attachments: dict[str, DetachedTensor]) -> None:
        self._protos = protos
        self.attachments = attachments
        self.before_filling: Callable[[DType, tuple[int, ...]], None] = lambda _dtype, _shape: None

    def __getitem__(self, alias: str) -> Tensor:
        detached = self.attachments.get(alias)
        if detached is not None:
            values = detached.field, detached.values
            return decode_tensor(detached.proto, values, before_filling=self.before_filling)
        if alias not in self._protos:  # reading a missing entry of a protobuf map would add it
            raise KeyError(alias)
        proto = self._protos[alias]
        if proto.dtype in dtypes.HANDLES:
            return _decode_handle(proto)
        return decode_tensor(proto, before_filling=self.before_filling)

    def __contains__(self, alias: object) -> bool:
        return alias in self.attachments or alias in self._protos

    def __iter__(self) -> Iterator[str]:
        yield from self._protos
        yield from self.attachments

    def __len__(self) -> int:
        return len(self._protos) + len(self.attachments)

    def value_count(self) -> int:
        """Return how many values the shapes of all tensors declare, without decoding them."""
        protos = [*self._protos.values(), *(detached.proto for detached in self.attachments.values())]
        return sum(math.prod(read_shape(proto)) for proto in protos)


class PredictRequest(NamedTuple):
    """A PredictRequest."""

    spec: ModelSpec | None
    inputs: Mapping[str, Tensor]  # by alias; a TensorMap if it was parsed
    output_filter: Sequence[str] = ()  # the outputs to return; empty for all


class Prediction(NamedTuple):
    """The content of a PredictResponse."""

    spec: ModelSpec
    outputs: Mapping[str, Tensor]  # by alias


class ExamplesRequest(NamedTuple):
    """A ClassificationRequest or RegressionRequest, with serialized tf.Examples."""

    spec: ModelSpec | None
    examples: Sequence[bytes]


class MultiInferenceRequest(NamedTuple):
    """A MultiInferenceRequest: the ModelSpec and method name of each task, and serialized tf.Examples for all."""

    tasks: list[tuple[ModelSpec, str]]
    examples: Sequence[bytes]


def parse_predict_request(content: bytes) -> PredictRequest:
    """Parse a serialized PredictRequest; the values of large inputs stay in `content`."""
    parsed = parse_message(schema.PredictRequest, "inputs", content)
    return read_predict_request(parsed.message, parsed.attachments)


def parse_request(method: str, content: bytes) -> Any:
    """Parse the serialized request of a method of PredictionService or ModelService.

    Returns PredictRequest, ExamplesRequest or MultiInferenceRequest; for GetModelStatus its ModelSpec or None; for
    other methods the message itself.
    """
    if method == "Predict":
        return parse_predict_request(content)
    message = schema.METHODS[method].request.FromString(content)
    return _READERS[method](message) if method in _READERS else message


def read_predict_request(message: Any, attachments: dict[str, DetachedTensor] | None = None) -> PredictRequest:
    """Read a PredictRequest, of which `attachments` are the large inputs."""
    return PredictRequest(read_model_spec(message), TensorMap(message.inputs, attachments or {}), message.output_filter)


def read_examples_request(message: Any) -> ExamplesRequest:
    """Read a ClassificationRequest or a RegressionRequest."""
    return ExamplesRequest(read_model_spec(message), _read_examples(message.input))


def read_multi_inference_request(message: Any) -> MultiInferenceRequest:
    """Read a MultiInferenceRequest."""
    tasks = [(read_spec(task.model_spec), task.method_name) for task in message.tasks]
    return MultiInferenceRequest(tasks, _read_examples(message.input))


def read_model_spec(request: Any) -> ModelSpec | None:
    """Read the ModelSpec of a request; None if it has none."""
    return read_spec(request.model_spec) if request.HasField("model_spec") else None


def read_spec(message: Any) -> ModelSpec:
    """Read a ModelSpec message."""
    choice = message.WhichOneof("version_choice")
    return ModelSpec(
        message.name,
        message.version.value if choice == "version" else None,
        message.version_label if choice == "version_label" else None,
        message.signature_name,
    )


def write_spec(message: Any, spec: ModelSpec) -> None:
    """Fill an empty ModelSpec message."""
    message.name = spec.name
    message.signature_name = spec.signature_name
    if spec.version is not None:
        message.version.value = spec.version
    if spec.label is not None:
        message.version_label = spec.label


_READERS: dict[str, Callable[[Any], Any]] = {
    "Classify": read_examples_request,
    "Regress": read_examples_request,
    "MultiInference": read_multi_inference_request,
    "GetModelStatus": read_model_spec,
}


def check_metadata_fields(fields: Sequence[str]) -> None:
    """Check that a GetModelMetadataRequest names `signature_def`, and nothing else."""
    if not fields:
        raise invalid_argument("GetModelMetadataRequest must specify at least one metadata_field")
    for field in fields:
        if field != SIGNATURE_FIELD:
            raise invalid_argument(f"Metadata field {field} is not supported")


def _read_examples(message: Any) -> Sequence[bytes]:
    """Return the serialized tf.Examples of an Input message."""
    field = message.WhichOneof("kind")
    if field is None:
        return []
    sent = getattr(message, field)
    examples = [example.SerializeToString() for example in sent.examples]
    if field != "example_list_with_context":
        return examples
    return ExamplesWithContext(sent.context.SerializeToString(), examples)


def _decode_handle(proto: Any) -> Tensor:
    """Decode a resource or variant, which the runtime rejects after all other checks.

    The checks need only the first dimension and one handle, so one handle is repeated without using memory for each.
    """
    handle = np.empty([], object)
    handle[()] = proto.resource_handle_val[-1] if proto.resource_handle_val else schema.ResourceHandleProto()
    shape = read_shape(proto)[:1]
    try:
        return Tensor(np.broadcast_to(handle, shape), dtypes.HANDLES[proto.dtype])
    except ValueError as error:
        raise invalid_argument(f"cannot create a tensor of shape {list(shape)}: {error}") from error
