"""The methods of PredictionService and ModelService: parsed requests in, response messages out.

gRPC and AMQP both carry these messages, so they share these handlers. Knows neither transport.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from savedmodel_bakery.serving.admission.context import Handler, RequestContext
from savedmodel_bakery.serving.inference import claims, examples
from savedmodel_bakery.serving.inference.predict import DEFAULT_SIGNATURE, PredictCall, predict
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import messages, responses
from savedmodel_bakery.wire.messages import ExamplesRequest, ModelSpec, MultiInferenceRequest, PredictRequest
from savedmodel_bakery.wire.status import invalid_argument


class PredictionService:
    """The methods of both services that run or describe a model.

    If `packed`, Predict outputs are written into `tensor_content` rather than typed fields. `check_method_names`
    rejects signatures that were exported for another method.
    """

    def __init__(self, registry: Registry, *, packed: bool = False, check_method_names: bool = False) -> None:
        self._registry = registry
        self._packed = packed
        self._check_method_names = check_method_names

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by the name of their method in `schema.METHODS`."""
        return {
            "Predict": self.predict,
            "Classify": self.classify,
            "Regress": self.regress,
            "MultiInference": self.multi_inference,
            "GetModelMetadata": self.metadata,
            "GetModelStatus": self.status,
        }

    def predict(self, request: PredictRequest, context: RequestContext) -> Any:
        """Predict."""
        spec = _permitted(request.spec, context)
        request.inputs.before_filling = partial(claims.take_declared, context)
        with self._registry.acquire(model_choice(spec)) as servable:
            call = PredictCall(spec.signature_name, request.inputs, request.output_filter, self._check_method_names)
            outputs = predict(servable, call, context)
            request.inputs.attachments.clear()  # the response may need as much memory
            return responses.make_predict_response(response_spec(servable, spec), outputs, packed=self._packed)

    def classify(self, request: ExamplesRequest, context: RequestContext) -> Any:
        """Classify."""
        spec = _permitted(request.spec, context)
        call = examples.ExamplesCall(spec.signature_name, request.examples, self._check_method_names)
        with self._registry.acquire(model_choice(spec)) as servable:
            result = examples.classify(servable, call, context)
            return responses.make_classification_response(response_spec(servable, spec), result)

    def regress(self, request: ExamplesRequest, context: RequestContext) -> Any:
        """Regress."""
        spec = _permitted(request.spec, context)
        call = examples.ExamplesCall(spec.signature_name, request.examples, self._check_method_names)
        with self._registry.acquire(model_choice(spec)) as servable:
            result = examples.regress(servable, call, context)
            return responses.make_regression_response(response_spec(servable, spec), result)

    def multi_inference(self, request: MultiInferenceRequest, context: RequestContext) -> Any:
        """MultiInference; the first task names the version."""
        specs = [_permitted(spec, context) for spec, _ in request.tasks]
        tasks = [examples.InferenceTask(spec.name, spec.signature_name, method) for spec, method in request.tasks]
        call = examples.MultiInferenceCall(tasks, request.examples, self._check_method_names)
        with self._registry.acquire(model_choice(specs[0]) if specs else ModelChoice("")) as servable:
            results = examples.multi_inference(servable, call, context)
            return responses.make_multi_inference_response([response_spec(servable, spec) for spec in specs], results)

    def metadata(self, request: Any, context: RequestContext) -> Any:
        """GetModelMetadata."""
        spec = _permitted(messages.read_model_spec(request), context)
        messages.check_metadata_fields(request.metadata_field)
        with self._registry.acquire(model_choice(spec)) as servable:
            return responses.make_metadata_response(servable.name, servable.version, servable.signatures)

    def status(self, spec: ModelSpec | None, context: RequestContext) -> Any:
        """GetModelStatus, whose request is only a ModelSpec."""
        choice = model_choice(_permitted(spec, context))
        return responses.make_status_response(self._registry.statuses(choice))


def _permitted(spec: ModelSpec | None, context: RequestContext) -> ModelSpec:
    """Return the ModelSpec of a request, which must have one, and whose caller may use the model."""
    if spec is None:
        raise invalid_argument("Missing ModelSpec")
    context.check_model(spec.name)
    return spec


def model_choice(spec: ModelSpec) -> ModelChoice:
    """Return which version of which model a request is for."""
    return ModelChoice(spec.name, spec.version, spec.label)


def response_spec(servable: Servable, requested: ModelSpec) -> ModelSpec:
    """Return the spec of the version that answers a request, with the name of the signature filled in."""
    return ModelSpec(servable.name, servable.version, None, requested.signature_name or DEFAULT_SIGNATURE)
