"""The methods of PredictionService and ModelService: parsed requests in, response messages out.

gRPC and AMQP both carry these messages, so they share these handlers. Knows neither transport.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from savedmodel_bakery.serving.admission.context import Handler, RequestContext
from savedmodel_bakery.serving.inference import claims, examples
from savedmodel_bakery.serving.inference.examples import ExamplesCall
from savedmodel_bakery.serving.inference.predict import DEFAULT_SIGNATURE, PredictCall, predict
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import messages, responses
from savedmodel_bakery.wire.messages import (
    ExamplesRequest,
    ModelSpec,
    MultiInferenceRequest,
    Prediction,
    PredictRequest,
    TensorMap,
)
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
            "Predict": self._predict,
            "Classify": partial(self._run_examples, examples.classify, responses.make_classification_response),
            "Regress": partial(self._run_examples, examples.regress, responses.make_regression_response),
            "MultiInference": self._multi_inference,
            "GetModelMetadata": self._metadata,
            "GetModelStatus": self._status,
        }

    def predict(self, request: PredictRequest, context: RequestContext) -> Prediction:
        """Run a Predict whose inputs and outputs are in no message."""
        spec = _permitted(request.spec, context)
        with self._registry.acquire(_model_choice(spec)) as servable:
            call = PredictCall(spec.signature_name, request.inputs, request.output_filter, self._check_method_names)
            return Prediction(_response_spec(servable, spec), predict(servable, call, context))

    def signatures(self, spec: ModelSpec, context: RequestContext) -> Mapping[str, Any]:
        """Return the SignatureDefs of a model, by name."""
        with self._registry.acquire(_model_choice(_permitted(spec, context))) as servable:
            return servable.signatures

    def _predict(self, request: PredictRequest, context: RequestContext) -> Any:
        inputs = request.inputs
        assert isinstance(inputs, TensorMap)  # as `parse_request` returns them
        inputs.before_filling = partial(claims.take_declared, context)
        spec, outputs = self.predict(request, context)
        inputs.attachments.clear()  # the response may need as much memory
        return responses.make_predict_response(spec, outputs, packed=self._packed)

    def _run_examples(
        self,
        run: Callable[[Servable, ExamplesCall, RequestContext], Any],
        make_response: Callable[[ModelSpec, Any], Any],
        request: ExamplesRequest,
        context: RequestContext,
    ) -> Any:
        spec = _permitted(request.spec, context)
        call = ExamplesCall(spec.signature_name, request.examples, self._check_method_names)
        with self._registry.acquire(_model_choice(spec)) as servable:
            return make_response(_response_spec(servable, spec), run(servable, call, context))

    def _multi_inference(self, request: MultiInferenceRequest, context: RequestContext) -> Any:
        """The first task names the version."""
        specs = [_permitted(spec, context) for spec, _ in request.tasks]
        tasks = [examples.InferenceTask(spec.name, spec.signature_name, method) for spec, method in request.tasks]
        call = examples.MultiInferenceCall(tasks, request.examples, self._check_method_names)
        with self._registry.acquire(_model_choice(specs[0]) if specs else ModelChoice("")) as servable:
            results = examples.multi_inference(servable, call, context)
            return responses.make_multi_inference_response([_response_spec(servable, spec) for spec in specs], results)

    def _metadata(self, request: Any, context: RequestContext) -> Any:
        spec = _permitted(messages.read_model_spec(request), context)
        messages.check_metadata_fields(request.metadata_field)
        with self._registry.acquire(_model_choice(spec)) as servable:
            return responses.make_metadata_response(servable.name, servable.version, servable.signatures)

    def _status(self, spec: ModelSpec | None, context: RequestContext) -> Any:
        """The request of GetModelStatus is only a ModelSpec."""
        choice = _model_choice(_permitted(spec, context))
        return responses.make_status_response(self._registry.statuses(choice))


def _permitted(spec: ModelSpec | None, context: RequestContext) -> ModelSpec:
    """Return the ModelSpec of a request, which must have one, and whose caller may use the model."""
    if spec is None:
        raise invalid_argument("Missing ModelSpec")
    context.check_model(spec.name)
    return spec


def _model_choice(spec: ModelSpec) -> ModelChoice:
    return ModelChoice(spec.name, spec.version, spec.label)


def _response_spec(servable: Servable, requested: ModelSpec) -> ModelSpec:
    """Return the spec of the version that answers a request, with the name of the signature filled in."""
    return ModelSpec(servable.name, servable.version, None, requested.signature_name or DEFAULT_SIGNATURE)
