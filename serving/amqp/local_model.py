"""A model in the worker's own process, as a backend."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.amqp.codec import OtherCall, Predict, Prediction
from savedmodel_bakery.serving.inference import claims, predict
from savedmodel_bakery.serving.inference.predict import PredictCall
from savedmodel_bakery.serving.loaded_model import LoadedModel
from savedmodel_bakery.serving.prediction_service import model_choice, response_spec
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.messages import ModelSpec, TensorMap, read_request
from savedmodel_bakery.wire.status import StatusError


class LocalModel:
    """A backend that loads a model, and its new versions as they appear, as the model server does; see `Backend`.

    Args:
        name: of the model.
        base_path: the folder with its version folders.

    Raises:
        StatusError: the model cannot be loaded.
    """

    def __init__(self, name: str, base_path: Path) -> None:
        self._loaded = LoadedModel(name, base_path)
        self._registry = self._loaded.registry

    def predict(self, call: Predict, context: RequestContext) -> Prediction:
        """Run a signature on tensors."""
        spec, inputs, output_filter, *_ = call
        take = partial(claims.take_declared, context)
        if isinstance(inputs, TensorMap):
            inputs.before_filling = take
        else:
            for tensor in inputs.values():
                take(tensor.dtype, tensor.array.shape)
        with self._registry.acquire(model_choice(spec)) as servable:
            core_call = PredictCall(spec.signature_name, inputs, output_filter)
            outputs = predict.predict(servable, core_call, context)
            return Prediction(response_spec(servable, spec), outputs)

    def input_dtypes(self, spec: ModelSpec, context: RequestContext) -> Mapping[str, DType]:  # noqa: ARG002
        """Return the element types of a signature's inputs, by alias."""
        with self._registry.acquire(model_choice(spec)) as servable:
            return predict.input_dtypes(servable.signatures, spec.signature_name)

    def call(self, call: OtherCall, context: RequestContext) -> bytes:
        """Run another method and return its serialized response."""
        request = read_request(call.method, call.message)
        response: bytes = self._loaded.handlers[call.method](request, context).SerializeToString()
        return response

    def check(self) -> StatusError | None:
        """Return None: the model is in this process."""
        return None

    def close(self) -> None:
        """Unload the model."""
        self._loaded.close()
