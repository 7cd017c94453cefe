"""The calls of PredictionService and ModelService: find the model, call the inference core, encode the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from savedmodel_bakery.serving import metrics
from savedmodel_bakery.serving.grpc import codec
from savedmodel_bakery.serving.inference import examples, metadata
from savedmodel_bakery.serving.inference.predict import PredictCall, predict
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry
from savedmodel_bakery.wire import messages, schema
from savedmodel_bakery.wire.messages import ExamplesRequest, ModelSpec, MultiInferenceRequest, PredictRequest
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

Handler = Callable[[Any, float | None], bytes]
"""From a decoded request and a time limit in seconds (None: no limit) to a serialized response."""


class Rpc(NamedTuple):
    """A unary call.

    Attributes:
        decode: parses the serialized request; raises DecodeError.
        handle: makes the response; raises StatusError.
    """

    decode: Callable[[bytes], Any]
    handle: Handler


class Handlers:
    """All calls of both services.

    Args:
        registry: the loaded models.
        packed: write Predict outputs into `tensor_content` rather than typed fields.
        check_method_names: reject signatures that were exported for another method.
        reload: applies a ModelServerConfig; returns when its new models are available.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        packed: bool,
        check_method_names: bool,
        reload: Callable[[Any], None],
    ) -> None:
        self._registry = registry
        self._reload = reload
        self._packed = packed
        self._check_method_names = check_method_names

    def calls(self) -> dict[str, Rpc]:
        """Return the calls by path."""
        rpcs = {
            "Predict": Rpc(codec.decode_predict, _counted("Predict", self.predict)),
            "Classify": Rpc(codec.decode_classify, _counted("Classify", self.classify)),
            "Regress": Rpc(codec.decode_regress, _counted("Regress", self.regress)),
            "MultiInference": Rpc(codec.decode_multi_inference, self.multi_inference),
            "GetModelMetadata": Rpc(codec.decode_metadata, self.metadata),
            "GetModelStatus": Rpc(codec.decode_status, self.status),
            "HandleReloadConfigRequest": Rpc(METHODS["HandleReloadConfigRequest"].request.FromString, self.reload),
        }
        return {METHODS[name].path: rpc for name, rpc in rpcs.items()}

    def predict(self, request: PredictRequest, timeout_s: float | None) -> bytes:
        """Predict."""
        spec = _required(request.spec)
        with self._registry.acquire(_choice(spec)) as servable:
            call = PredictCall(
                spec.signature_name, request.inputs, request.output_filter, timeout_s, self._check_method_names
            )
            outputs = predict(servable, call)
            request.inputs.attachments.clear()  # the response may need as much memory
            return codec.encode_predict(servable, spec.signature_name, outputs, packed=self._packed)

    def classify(self, request: ExamplesRequest, timeout_s: float | None) -> bytes:
        """Classify."""
        spec, serialized = _required(request.spec), request.examples
        call = examples.ExamplesCall(spec.signature_name, serialized, timeout_s, self._check_method_names)
        with self._registry.acquire(_choice(spec)) as servable:
            return codec.encode_classify(servable, spec.signature_name, examples.classify(servable, call))

    def regress(self, request: ExamplesRequest, timeout_s: float | None) -> bytes:
        """Regress."""
        spec, serialized = _required(request.spec), request.examples
        call = examples.ExamplesCall(spec.signature_name, serialized, timeout_s, self._check_method_names)
        with self._registry.acquire(_choice(spec)) as servable:
            return codec.encode_regress(servable, spec.signature_name, examples.regress(servable, call))

    def multi_inference(self, request: MultiInferenceRequest, timeout_s: float | None) -> bytes:
        """MultiInference; the first task names the version."""
        specs = [spec for spec, _ in request.tasks]
        tasks = [examples.InferenceTask(spec.name, spec.signature_name, method) for spec, method in request.tasks]
        call = examples.MultiInferenceCall(tasks, request.examples, timeout_s, self._check_method_names)
        with self._registry.acquire(_choice(specs[0]) if specs else ModelChoice("")) as servable:
            results = examples.multi_inference(servable, call)
            return codec.encode_multi_inference(servable, [spec.signature_name for spec in specs], results)

    def metadata(self, request: codec.MetadataRequest, timeout_s: float | None) -> bytes:  # noqa: ARG002
        """GetModelMetadata."""
        spec = _required(request.spec)
        messages.check_metadata_fields(request.fields)
        with self._registry.acquire(_choice(spec)) as servable:
            return codec.encode_metadata(metadata.metadata(servable))

    def status(self, spec: ModelSpec | None, timeout_s: float | None) -> bytes:  # noqa: ARG002
        """GetModelStatus."""
        return codec.encode_status(metadata.status(self._registry, _choice(_required(spec))))

    def reload(self, request: Any, timeout_s: float | None) -> bytes:  # noqa: ARG002
        """HandleReloadConfigRequest; returns by how much the named counters grew during the call."""
        if request.config.WhichOneof("config") != "model_config_list":
            raise invalid_argument(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. "
                "Only ModelConfigList is currently supported"
            )
        before = metrics.counters()
        self._reload(request.config)
        response = schema.ReloadConfigResponse()
        response.status.SetInParent()
        after = metrics.counters()
        for name in sorted(set(request.metric_names)):
            response.metric.add(name=name, int64_value_increase=after.get(name, 0) - before.get(name, 0))
        content: bytes = response.SerializeToString()
        return content


def _counted(api: str, handle: Handler) -> Handler:
    """Return a handler that also records each call in the metrics."""

    def counted(request: Any, timeout_s: float | None) -> bytes:
        started, code = time.perf_counter(), Code.INTERNAL
        try:
            response = handle(request, timeout_s)
            code = Code.OK
        except StatusError as error:
            code = error.code
            raise
        finally:
            model_name = request.spec.name if request.spec else ""
            metrics.count_request(model_name, api, "GRPC", code, time.perf_counter() - started)
        return response

    return counted


def _required(spec: ModelSpec | None) -> ModelSpec:
    if spec is None:
        raise invalid_argument("Missing ModelSpec")
    return spec


def _choice(spec: ModelSpec) -> ModelChoice:
    return ModelChoice(spec.name, spec.version, spec.label)
