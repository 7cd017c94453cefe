"""A model in the worker's own process, as a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from savedmodel_bakery.serving.amqp.codec import Predict, Prediction, require_spec
from savedmodel_bakery.serving.inference import examples, metadata, predict, warmup
from savedmodel_bakery.serving.inference.examples import ExamplesCall, InferenceTask, MultiInferenceCall
from savedmodel_bakery.serving.inference.predict import DEFAULT_SIGNATURE, PredictCall
from savedmodel_bakery.serving.models.lifecycle import Lifecycle, LifecycleOptions
from savedmodel_bakery.serving.models.loading import LoadOptions, load
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.serving.options.model_config import single_model
from savedmodel_bakery.wire import messages
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.messages import ModelSpec
from savedmodel_bakery.wire.schema import METHODS


class LocalModel:
    """A backend that loads a model, and its new versions as they appear, as the model server does; see `Backend`.

    Args:
        name: of the model.
        base_path: the folder with its version folders.
        timeout_s: time limit of a run.

    Raises:
        StatusError: the model cannot be loaded.
    """

    def __init__(self, name: str, base_path: Path, *, timeout_s: float) -> None:
        self._registry = Registry()
        self._lifecycle = Lifecycle(
            self._registry,
            partial(load, options=LoadOptions(warm_up=warmup.replay)),
            LifecycleOptions(max_load_retries=0),
        )
        self._lifecycle.start(single_model(name, str(base_path.absolute())))
        self._timeout_s = timeout_s
        self._methods: dict[str, Callable[[Any], Any]] = {
            "Classify": self._classify,
            "Regress": self._regress,
            "MultiInference": self._multi_inference,
            "GetModelMetadata": self._metadata,
            "GetModelStatus": self._status,
        }

    def predict(self, call: Predict) -> Prediction:
        """Run a signature on tensors."""
        spec, inputs, output_filter, _ = call
        with self._acquire(spec) as servable:
            core_call = PredictCall(spec.signature_name, inputs, output_filter, self._timeout_s)
            return Prediction(_response_spec(servable, spec), predict.predict(servable, core_call))

    def input_dtypes(self, spec: ModelSpec) -> Mapping[str, DType]:
        """Return the element types of a signature's inputs, by alias."""
        with self._acquire(spec) as servable:
            return predict.input_dtypes(servable, spec.signature_name)

    def call(self, method: str, content: bytes) -> bytes:
        """Run another method, from a serialized request to a serialized response."""
        response = self._methods[method](METHODS[method].request.FromString(content))
        serialized: bytes = response.SerializeToString()
        return serialized

    def close(self) -> None:
        """Unload the model."""
        self._lifecycle.stop()

    def _classify(self, message: Any) -> Any:
        request = messages.read_examples_request(message)
        spec = require_spec(request.spec)
        with self._acquire(spec) as servable:
            result = examples.classify(servable, ExamplesCall(spec.signature_name, request.examples, self._timeout_s))
            return messages.make_classification_response(_response_spec(servable, spec), result)

    def _regress(self, message: Any) -> Any:
        request = messages.read_examples_request(message)
        spec = require_spec(request.spec)
        with self._acquire(spec) as servable:
            result = examples.regress(servable, ExamplesCall(spec.signature_name, request.examples, self._timeout_s))
            return messages.make_regression_response(_response_spec(servable, spec), result)

    def _multi_inference(self, message: Any) -> Any:
        request = messages.read_multi_inference_request(message)
        specs = [spec for spec, _ in request.tasks]
        tasks = [InferenceTask(spec.name, spec.signature_name, method) for spec, method in request.tasks]
        with self._acquire(specs[0] if specs else ModelSpec("", None, None, "")) as servable:
            results = examples.multi_inference(servable, MultiInferenceCall(tasks, request.examples, self._timeout_s))
            return messages.make_multi_inference_response([_response_spec(servable, spec) for spec in specs], results)

    def _metadata(self, message: Any) -> Any:
        spec = require_spec(messages.read_model_spec(message))
        messages.check_metadata_fields(message.metadata_field)
        with self._acquire(spec) as servable:
            return messages.make_metadata_response(*metadata.metadata(servable))

    def _status(self, message: Any) -> Any:
        spec = require_spec(messages.read_model_spec(message))
        choice = ModelChoice(spec.name, spec.version, spec.label)
        return messages.make_status_response(metadata.status(self._registry, choice))

    def _acquire(self, spec: ModelSpec) -> AbstractContextManager[Servable]:
        return self._registry.acquire(ModelChoice(spec.name, spec.version, spec.label))


def _response_spec(servable: Servable, requested: ModelSpec) -> ModelSpec:
    return ModelSpec(servable.name, servable.version, None, requested.signature_name or DEFAULT_SIGNATURE)
