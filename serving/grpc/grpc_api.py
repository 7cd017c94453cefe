"""The calls of PredictionService and ModelService over gRPC: those of the inference core, counted, and the reload."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.methods import Rpc
from savedmodel_bakery.serving.prediction_service import PredictionService
from savedmodel_bakery.serving.telemetry import metrics
from savedmodel_bakery.wire import messages, schema
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import invalid_argument

_COUNTED = ("Predict", "Classify", "Regress")
_RUN_MODELS = {*_COUNTED, "MultiInference"}


class GrpcApi:
    """All calls of both services; `reload` returns when the new models of a ModelServerConfig are available."""

    def __init__(self, service: PredictionService, *, reload: Callable[[Any, RequestContext], None]) -> None:
        self._service = service
        self._reload = reload

    def calls(self) -> dict[str, Rpc]:
        """Return the calls by path."""
        handlers = self._service.handlers()
        handlers["HandleReloadConfigRequest"] = self.reload
        return {
            METHODS[name].path: Rpc(
                partial(messages.parse_request, name),
                handle,
                METHODS[name].request,
                api=name if name in _COUNTED else None,
                runs_model=name in _RUN_MODELS,
            )
            for name, handle in handlers.items()
        }

    def reload(self, request: Any, context: RequestContext) -> Any:
        """HandleReloadConfigRequest; returns by how much the named counters grew during the call."""
        if request.config.WhichOneof("config") != "model_config_list":
            raise invalid_argument(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. "
                "Only ModelConfigList is currently supported"
            )
        before = metrics.counters()
        self._reload(request.config, context)
        after = metrics.counters()
        response = schema.ReloadConfigResponse()
        response.status.SetInParent()
        for name in sorted(set(request.metric_names)):
            response.metric.add(name=name, int64_value_increase=after.get(name, 0) - before.get(name, 0))
        return response
