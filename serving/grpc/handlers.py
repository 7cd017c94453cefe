"""The calls of PredictionService and ModelService, from request message to response message."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from serving.data_plane import classify, model, predict
from serving.registry import ModelChoice, Registry
from serving.servable import Servable, Tensor
from wire import dtypes, schema, tensors
from wire.status import invalid_argument

Call = Callable[[Any, "float | None"], Any]
"""From a request message and the seconds it may take (None: no limit) to a response message."""


class Handlers:
    """Every call that is served.

    Args:
        registry: where servables are found.
        packed: write numbers of Predict answers into `tensor_content` rather than typed fields.
    """

    def __init__(self, registry: Registry, *, packed: bool) -> None:
        self._registry = registry
        self._packed = packed

    def calls(self) -> dict[str, Call]:
        """Calls by their name in `schema.METHODS`."""
        return {
            "Predict": self.predict,
            "Classify": self.classify,
            "GetModelMetadata": self.metadata,
            "GetModelStatus": self.status,
        }

    def predict(self, request: Any, timeout_s: float | None) -> Any:
        """Predict."""
        with self._registry.acquire(_choice(request)) as servable:
            signature = predict.find_signature(servable, request.model_spec.signature_name)
            feeds = predict.read_inputs(signature, request.inputs, _decode)
            aliases = predict.choose_outputs(signature, request.output_filter)
            outputs = predict.run(servable, signature, feeds, aliases, timeout_s)
            response = schema.PredictResponse()
            _fill_spec(response.model_spec, servable, request.model_spec.signature_name)
        for alias, tensor in outputs.items():
            response.outputs[alias].CopyFrom(
                tensors.encode_tensor(tensor.array, packed=self._packed, dtype=tensor.dtype)
            )
        return response

    def classify(self, request: Any, timeout_s: float | None) -> Any:
        """Classify."""
        with self._registry.acquire(_choice(request)) as servable:
            signature = classify.find_signature(servable, request.model_spec.signature_name)
            classes, scores = classify.run(servable, signature, _examples(request.input), timeout_s)
            response = schema.ClassificationResponse()
            _fill_spec(response.model_spec, servable, request.model_spec.signature_name)
        for labels, row in zip_longest([] if classes is None else classes, [] if scores is None else scores):
            result = response.result.classifications.add()
            for label, score in zip_longest(() if labels is None else labels, () if row is None else row):
                result.classes.add(label=(label or b"").decode(errors="replace"), score=score or 0.0)
        return response

    def metadata(self, request: Any, timeout_s: float | None) -> Any:  # noqa: ARG002 - every call takes a limit
        """GetModelMetadata."""
        model.check_metadata_fields(request.metadata_field)
        with self._registry.acquire(_choice(request)) as servable:
            return model.metadata(servable)

    def status(self, request: Any, timeout_s: float | None) -> Any:  # noqa: ARG002 - every call takes a limit
        """GetModelStatus."""
        return model.status(self._registry, _choice(request))


def _choice(request: Any) -> ModelChoice:
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    spec = request.model_spec
    given = spec.WhichOneof("version_choice")
    return ModelChoice(
        spec.name,
        spec.version.value if given == "version" else None,
        spec.version_label if given == "version_label" else None,
    )


def _fill_spec(spec: Any, servable: Servable, signature_name: str) -> None:
    spec.name = servable.name
    spec.version.value = servable.version
    spec.signature_name = signature_name or predict.DEFAULT_SIGNATURE


def _decode(proto: Any) -> Tensor:
    return Tensor(tensors.decode_tensor(proto), dtypes.of_number(proto.dtype))


def _examples(message: Any) -> list[bytes]:
    """Serialized tf.Examples of an Input; a context is merged into each by standing before it."""
    kind = message.WhichOneof("kind")
    if kind is None:
        return []
    chosen = getattr(message, kind)
    context = chosen.context.SerializeToString() if kind == "example_list_with_context" else b""
    return [context + example.SerializeToString() for example in chosen.examples]
