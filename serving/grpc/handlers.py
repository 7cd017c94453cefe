"""The calls of PredictionService and ModelService over gRPC: those of the inference core, counted, and the reload."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from savedmodel_bakery.serving import metrics
from savedmodel_bakery.serving.inference.service import Handler, Rpc, Service
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

_COUNTED = ("Predict", "Classify", "Regress")


class Handlers:
    """All calls of both services.

    Args:
        service: the calls that run or describe a model.
        reload: applies a ModelServerConfig; returns when its new models are available.
    """

    def __init__(self, service: Service, *, reload: Callable[[Any], None]) -> None:
        self._service = service
        self._reload = reload

    def calls(self) -> dict[str, Rpc]:
        """Return the calls by path."""
        rpcs = self._service.rpcs()
        for name in _COUNTED:
            rpcs[name] = rpcs[name]._replace(handle=_counted(name, rpcs[name].handle))
        rpcs["HandleReloadConfigRequest"] = Rpc(METHODS["HandleReloadConfigRequest"].request.FromString, self.reload)
        return {METHODS[name].path: rpc for name, rpc in rpcs.items()}

    def reload(self, request: Any, timeout_s: float | None) -> Any:  # noqa: ARG002
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
        return response


def _counted(api: str, handle: Handler) -> Handler:
    """Return a handler that also records each call in the metrics."""

    def counted(request: Any, timeout_s: float | None) -> Any:
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
