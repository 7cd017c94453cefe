"""The calls of PredictionService on one servable, from request message to response message."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import numpy as np

from savedmodel_bakery.serving import metrics
from savedmodel_bakery.serving.inference import examples
from savedmodel_bakery.serving.inference import predict as predictions
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import dtypes, schema, tensors
from savedmodel_bakery.wire.attachments import DetachedTensor, TensorMessage
from savedmodel_bakery.wire.status import invalid_argument
from savedmodel_bakery.wire.tensors import Tensor, decode_tensor


def predict(
    servable: Servable,
    request: Any,
    *,
    timeout_s: float | None = None,
    check_method_name: bool = False,
    packed: bool = False,
    attachments: dict[str, DetachedTensor] | None = None,
) -> Any:
    """A PredictResponse, or a `TensorMessage` of one.

    Args:
        servable: what answers, whatever the request's model spec says of name and version.
        request: a PredictRequest.
        timeout_s: limit of the run; None is none.
        check_method_name: refuse a signature that was exported for a method of its author's own.
        packed: write tensors into `tensor_content` rather than typed fields.
        attachments: large inputs, kept outside the request; cleared once they are decoded.

    Raises:
        StatusError: a refusal, or what the runtime said.
    """
    signature = predictions.find_signature(servable, request.model_spec.signature_name)
    if check_method_name:
        predictions.check_method_name(signature)
    feeds = predictions.read_inputs(signature, {**request.inputs, **(attachments or {})}, _decode)
    if attachments:
        attachments.clear()  # which frees a request whose inputs were copied, before the model needs memory of its own
    aliases = predictions.choose_outputs(signature, request.output_filter)
    outputs = predictions.run(servable, signature, feeds, aliases, timeout_s)
    del feeds  # which may be large
    response = schema.PredictResponse()
    _fill_spec(response.model_spec, servable, request.model_spec.signature_name)
    message = TensorMessage(response, "outputs")
    for alias, tensor in outputs.items():
        message.add(alias, tensor.array, packed=packed, packed_strings=packed, dtype=tensor.dtype, shape=tensor.shape)
    return message if message.attachments else response


def classify(
    servable: Servable, request: Any, *, timeout_s: float | None = None, check_method_name: bool = False
) -> Any:
    """A ClassificationResponse; arguments and errors as for `predict`."""
    task = examples.Task(examples.find_signature(servable, request.model_spec.signature_name), examples.Classify)
    response = schema.ClassificationResponse()
    _fill_spec(response.model_spec, servable, request.model_spec.signature_name)
    (result,) = _run_tasks(servable, [task], request, timeout_s, check_method_name)
    _fill_classifications(response.result, result)
    return response


def regress(
    servable: Servable, request: Any, *, timeout_s: float | None = None, check_method_name: bool = False
) -> Any:
    """A RegressionResponse; arguments and errors as for `predict`."""
    task = examples.Task(examples.find_signature(servable, request.model_spec.signature_name), examples.Regress)
    response = schema.RegressionResponse()
    _fill_spec(response.model_spec, servable, request.model_spec.signature_name)
    (result,) = _run_tasks(servable, [task], request, timeout_s, check_method_name)
    _fill_regressions(response.result, result)
    return response


def multi_inference(
    servable: Servable, request: Any, *, timeout_s: float | None = None, check_method_name: bool = False
) -> Any:
    """A MultiInferenceResponse, results in the order of the tasks; arguments and errors as for `predict`."""
    names = [task.model_spec.name for task in request.tasks]
    tasks = examples.read_tasks(servable, request.tasks, names, check_method_names=check_method_name)
    results = _run_tasks(servable, tasks, request, timeout_s, check_method_name)
    count = len(_serialized_examples(request.input))
    metrics.EXAMPLE_COUNTS.labels(servable.name).observe(count)
    metrics.EXAMPLE_COUNT_TOTAL.labels(servable.name).inc(count)
    response = schema.MultiInferenceResponse()
    for message, task, result in zip(request.tasks, tasks, results, strict=True):
        entry = response.results.add()
        _fill_spec(entry.model_spec, servable, message.model_spec.signature_name)
        if task.method is examples.Classify:
            _fill_classifications(entry.classification_result, result)
        else:
            _fill_regressions(entry.regression_result, result)
    return response


def _run_tasks(
    servable: Servable, tasks: list[examples.Task], request: Any, timeout_s: float | None, check_method_name: bool
) -> list[Any]:
    return examples.run(
        servable,
        tasks,
        _serialized_examples(request.input),
        timeout_s=timeout_s,
        check_method_names=check_method_name,
    )


def _fill_spec(spec: Any, servable: Servable, signature_name: str) -> None:
    spec.name = servable.name
    spec.version.value = servable.version
    spec.signature_name = signature_name or predictions.DEFAULT_SIGNATURE


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
    if isinstance(proto, DetachedTensor):
        return decode_tensor(proto.proto, (proto.field, proto.values))
    if proto.dtype in dtypes.HANDLES:  # which the runtime refuses, after all other checks
        return Tensor(_handles(proto), dtypes.HANDLES[proto.dtype])
    return decode_tensor(proto)


def _handles(proto: Any) -> np.ndarray:
    """One handle for all rows, and no further dimensions: all that checks read, in the memory of one."""
    handle = np.empty([], object)
    handle[()] = proto.resource_handle_val[-1] if proto.resource_handle_val else schema.ResourceHandleProto()
    shape = tensors.read_shape(proto)[:1]
    try:
        return np.broadcast_to(handle, shape)
    except ValueError as error:
        raise invalid_argument(f"a tensor of shape {list(shape)} cannot be made: {error}") from error


def _serialized_examples(message: Any) -> list[bytes]:
    """Serialized tf.Examples of an Input; a context is merged into each by standing before it."""
    kind = message.WhichOneof("kind")
    if kind is None:
        return []
    chosen = getattr(message, kind)
    context = chosen.context.SerializeToString() if kind == "example_list_with_context" else b""
    return [context + example.SerializeToString() for example in chosen.examples]
