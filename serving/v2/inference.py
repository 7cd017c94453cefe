"""Inference over the v2 protocol: checks a request against a signature, decodes its inputs and runs the model.

Knows neither HTTP nor gRPC. Checks by name and datatype come first, so that an error names the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.inference import claims
from savedmodel_bakery.serving.inference.predict import DEFAULT_SIGNATURE, PredictCall, predict
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry
from savedmodel_bakery.serving.v2.descriptions import quoted, shape, signature_not_found
from savedmodel_bakery.wire.dtypes import STRING
from savedmodel_bakery.wire.status import invalid_argument
from savedmodel_bakery.wire.v2.infer import InferRequest, InferResponse, RequestedOutput
from savedmodel_bakery.wire.v2.tensors import SentTensor, of_dtype, of_number, shown


def infer(
    registry: Registry, choice: ModelChoice, request: InferRequest, context: RequestContext, *, check_method_names: bool
) -> InferResponse:
    """Decode the inputs of a request, whose caller may use the model, and run the model.

    Waits for memory, so the caller must hold no lock.
    """
    with registry.acquire(choice) as servable:
        name = request.signature_name or DEFAULT_SIGNATURE
        if name not in servable.signatures:
            raise signature_not_found(servable, name)
        where = f"signature {shown(name)} of model {shown(servable.name)} version {servable.version}"
        inputs = _check_inputs(servable.signatures[name], where, request.inputs)
        _check_outputs(servable.signatures[name], where, request.outputs)
        call = PredictCall(
            name,
            {alias: sent.decode(partial(claims.take_declared, context)) for alias, sent in inputs.items()},
            [output.name for output in request.outputs],
            check_method_names,
        )
        outputs = predict(servable, call, context)
    return InferResponse(servable.name, str(servable.version), outputs, request.request_id)


def _check_inputs(signature: Any, where: str, sent: Sequence[SentTensor]) -> dict[str, SentTensor]:
    """Return the inputs by name; `where` is the signature in words, for error messages."""
    inputs: dict[str, SentTensor] = {}
    for tensor in sent:
        if tensor.name in inputs:
            raise invalid_argument(f"{tensor.tensor} is repeated")
        if tensor.name not in signature.inputs:
            raise invalid_argument(
                f"{tensor.tensor} is not an input of {where}; its inputs are {quoted(sorted(signature.inputs))}"
            )
        expected = of_number(signature.inputs[tensor.name].dtype, tensor.tensor)
        datatype = of_dtype(tensor.dtype, tensor.tensor)
        if datatype != expected:
            raise invalid_argument(f"{tensor.tensor} is {datatype}; must be {expected} for {where}")
        inputs[tensor.name] = tensor._replace(shape=_fitting(tensor, signature.inputs[tensor.name], where))
    missing = sorted(set(signature.inputs) - set(inputs) - set(signature.defaults))
    if missing:
        raise invalid_argument(f"{where} needs the inputs {quoted(missing)}, which the request does not have")
    return inputs


def _fitting(sent: SentTensor, declared: Any, where: str) -> tuple[int, ...]:
    """Return the shape of an input as the signature declares it: MLServer's codecs send n strings as [n, 1]."""
    sizes = shape(declared)
    if declared.tensor_shape.unknown_rank or not sizes:  # a TF Lite file has unknown ranks like scalars
        return sent.shape
    fitting = sent.shape[:1] if sent.dtype is STRING and len(sizes) == 1 and sent.shape[1:] == (1,) else sent.shape
    if len(fitting) != len(sizes) or any(size not in (-1, given) for size, given in zip(sizes, fitting, strict=True)):
        raise invalid_argument(f"{sent.tensor} has the shape {list(sent.shape)}; must be {sizes} for {where}")
    return fitting


def _check_outputs(signature: Any, where: str, requested: Sequence[RequestedOutput]) -> None:
    """Check the outputs that a request names, or all if it names none."""
    seen: set[str] = set()
    for output in requested:
        if output.name in seen:
            raise invalid_argument(f"output {shown(output.name)} is requested twice")
        if output.name not in signature.outputs:
            raise invalid_argument(
                f"output {shown(output.name)} is not an output of {where}; its outputs are "
                f"{quoted(sorted(signature.outputs))}"
            )
        seen.add(output.name)
    for alias in seen or signature.outputs:
        of_number(signature.outputs[alias].dtype, f"output {shown(alias)} of {where}")
