"""The calls of PredictionService and ModelService, from request message to response message."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from savedmodel_bakery.serving import metrics
from savedmodel_bakery.serving.inference import messages, model
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.attachments import DetachedTensor
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

Call = Callable[..., Any]
"""From a request message and the seconds it may take (None: no limit) to a response message.

Predict takes large inputs as attachments of the request.
"""


class Handlers:
    """Every call that is served.

    Args:
        registry: where servables are found.
        packed: write Predict answers into `tensor_content` rather than typed fields.
        check_method_names: refuse signatures that were exported for another method.
        reload: puts a ModelServerConfig in force; returns when its new models answer.
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

    def calls(self) -> dict[str, Call]:
        """Calls by their name in `schema.METHODS`."""
        return {
            "Predict": _counted("Predict", self.predict),
            "Classify": _counted("Classify", self.classify),
            "Regress": _counted("Regress", self.regress),
            "MultiInference": self.multi_inference,
            "GetModelMetadata": self.metadata,
            "GetModelStatus": self.status,
            "HandleReloadConfigRequest": self.reload_config,
        }

    def predict(
        self, request: Any, timeout_s: float | None, attachments: dict[str, DetachedTensor] | None = None
    ) -> Any:
        """Predict; large inputs may be attached to the request."""
        with self._registry.acquire(_choice(request)) as servable:
            return messages.predict(
                servable,
                request,
                timeout_s=timeout_s,
                check_method_name=self._check_method_names,
                packed=self._packed,
                attachments=attachments,
            )

    def classify(self, request: Any, timeout_s: float | None) -> Any:
        """Classify."""
        with self._registry.acquire(_choice(request)) as servable:
            return messages.classify(servable, request, timeout_s=timeout_s, check_method_name=self._check_method_names)

    def regress(self, request: Any, timeout_s: float | None) -> Any:
        """Regress."""
        with self._registry.acquire(_choice(request)) as servable:
            return messages.regress(servable, request, timeout_s=timeout_s, check_method_name=self._check_method_names)

    def multi_inference(self, request: Any, timeout_s: float | None) -> Any:
        """MultiInference: the version is the first task's."""
        if not request.tasks:
            raise invalid_argument("ModelSpec has no name specified.")
        with self._registry.acquire(_choice_of_spec(request.tasks[0].model_spec)) as servable:
            return messages.multi_inference(
                servable, request, timeout_s=timeout_s, check_method_name=self._check_method_names
            )

    def metadata(self, request: Any, timeout_s: float | None) -> Any:  # noqa: ARG002 - every call takes a limit
        """GetModelMetadata."""
        choice = _choice(request)
        model.check_metadata_fields(request.metadata_field)
        with self._registry.acquire(choice) as servable:
            return model.metadata(servable)

    def status(self, request: Any, timeout_s: float | None) -> Any:  # noqa: ARG002 - every call takes a limit
        """GetModelStatus."""
        return model.status(self._registry, _choice(request))

    def reload_config(self, request: Any, timeout_s: float | None) -> Any:  # noqa: ARG002 - every call takes a limit
        """HandleReloadConfigRequest, with the growth of counters during the call."""
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


def _counted(api: str, call: Call) -> Call:
    """The same call, noted in the metrics."""

    def counted(request: Any, timeout_s: float | None, **others: Any) -> Any:
        started, code = time.perf_counter(), Code.INTERNAL
        try:
            response = call(request, timeout_s, **others)
            code = Code.OK
        except StatusError as error:
            code = error.code
            raise
        finally:
            metrics.count_request(request.model_spec.name, api, "GRPC", code, time.perf_counter() - started)
        return response

    return counted


def _choice(request: Any) -> ModelChoice:
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    return _choice_of_spec(request.model_spec)


def _choice_of_spec(spec: Any) -> ModelChoice:
    given = spec.WhichOneof("version_choice")
    return ModelChoice(
        spec.name,
        spec.version.value if given == "version" else None,
        spec.version_label if given == "version_label" else None,
    )
