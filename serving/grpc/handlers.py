"""The calls of PredictionService and ModelService, from request message to response message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

import numpy as np

from serving.configuration import ModelConfig, read_config
from serving.data_plane import examples, model, predict
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
        packed: write Predict answers into `tensor_content` rather than typed fields.
        check_method_names: refuse signatures that were exported for another method.
        reload: puts another configuration in force; returns when its new models answer.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        packed: bool,
        check_method_names: bool,
        reload: Callable[[Mapping[str, ModelConfig]], None],
    ) -> None:
        self._registry = registry
        self._reload = reload
        self._packed = packed
        self._check_method_names = check_method_names

    def calls(self) -> dict[str, Call]:
        """Calls by their name in `schema.METHODS`."""
        return {
            "Predict": self.predict,
            "Classify": self.classify,
            "Regress": self.regress,
            "MultiInference": self.multi_inference,
            "GetModelMetadata": self.metadata,
            "GetModelStatus": self.status,
            "HandleReloadConfigRequest": self.reload_config,
        }

    def predict(self, request: Any, timeout_s: float | None) -> Any:
        """Predict."""
        with self._registry.acquire(_choice(request)) as servable:
            signature = predict.find_signature(servable, request.model_spec.signature_name)
            if self._check_method_names:
                predict.check_method_name(signature)
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
        response = schema.ClassificationResponse()
        (result,) = self._run_method(examples.Classify, request, response, timeout_s)
        _fill_classifications(response.result, result)
        return response

    def regress(self, request: Any, timeout_s: float | None) -> Any:
        """Regress."""
        response = schema.RegressionResponse()
        (result,) = self._run_method(examples.Regress, request, response, timeout_s)
        _fill_regressions(response.result, result)
        return response

    def multi_inference(self, request: Any, timeout_s: float | None) -> Any:
        """MultiInference: the version is the first task's."""
        if not request.tasks:
            raise invalid_argument("ModelSpec has no name specified.")
        names = [task.model_spec.name for task in request.tasks]
        response = schema.MultiInferenceResponse()
        with self._registry.acquire(_choice(request.tasks[0])) as servable:
            tasks = examples.read_tasks(servable, request.tasks, names)
            results = self._run_tasks(servable, tasks, request.input, timeout_s)
            for message, task, result in zip(request.tasks, tasks, results, strict=True):
                entry = response.results.add()
                _fill_spec(entry.model_spec, servable, message.model_spec.signature_name)
                if task.method is examples.Classify:
                    _fill_classifications(entry.classification_result, result)
                else:
                    _fill_regressions(entry.regression_result, result)
        return response

    def _run_method(
        self, method: type[examples.Method], request: Any, response: Any, timeout_s: float | None
    ) -> list[Any]:
        with self._registry.acquire(_choice(request)) as servable:
            name = request.model_spec.signature_name
            task = examples.Task(examples.find_signature(servable, name), method)
            _fill_spec(response.model_spec, servable, name)
            return self._run_tasks(servable, [task], request.input, timeout_s)

    def _run_tasks(
        self, servable: Servable, tasks: list[examples.Task], given: Any, timeout_s: float | None
    ) -> list[Any]:
        return examples.run(
            servable,
            tasks,
            _serialized_examples(given),
            timeout_s=timeout_s,
            check_method_names=self._check_method_names,
        )

    def metadata(self, request: Any, timeout_s: float | None) -> Any:  # noqa: ARG002 - every call takes a limit
        """GetModelMetadata."""
        model.check_metadata_fields(request.metadata_field)
        with self._registry.acquire(_choice(request)) as servable:
            return model.metadata(servable)

    def status(self, request: Any, timeout_s: float | None) -> Any:  # noqa: ARG002 - every call takes a limit
        """GetModelStatus."""
        return model.status(self._registry, _choice(request))

    def reload_config(self, request: Any, timeout_s: float | None) -> Any:  # noqa: ARG002 - every call takes a limit
        """HandleReloadConfigRequest; there are no counters yet, so none has grown during the call."""
        if request.config.WhichOneof("config") != "model_config_list":
            raise invalid_argument(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. "
                "Only ModelConfigList is currently supported"
            )
        self._reload(read_config(request.config))
        response = schema.ReloadConfigResponse()
        response.status.SetInParent()
        for name in sorted(set(request.metric_names)):
            response.metric.add(name=name, int64_value_increase=0)
        return response


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


def _fill_classifications(message: Any, found: examples.Classifications) -> None:
    classes, scores = found
    for labels, row in zip_longest([] if classes is None else classes, [] if scores is None else scores):
        result = message.classifications.add()
        for label, score in zip_longest(() if labels is None else labels, () if row is None else row):
            result.classes.add(label=(label or b"").decode(errors="replace"), score=score or 0.0)


def _fill_regressions(message: Any, values: np.ndarray) -> None:
    for value in values.tolist():
        message.regressions.add(value=value)


def _decode(proto: Any) -> Tensor:
    return Tensor(tensors.decode_tensor(proto), dtypes.of_number(proto.dtype))


def _serialized_examples(message: Any) -> list[bytes]:
    """Serialized tf.Examples of an Input; a context is merged into each by standing before it."""
    kind = message.WhichOneof("kind")
    if kind is None:
        return []
    chosen = getattr(message, kind)
    context = chosen.context.SerializeToString() if kind == "example_list_with_context" else b""
    return [context + example.SerializeToString() for example in chosen.examples]
