"""Predict: inputs by alias to outputs by alias, with tensorflow_model_server's checks in its order."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import OverloadError
from savedmodel_bakery.serving.inference import claims
from savedmodel_bakery.serving.inference.claims import Charged
from savedmodel_bakery.serving.models.servable import Servable, SignatureTensors
from savedmodel_bakery.serving.telemetry import metrics
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor, decode_tensor

DEFAULT_SIGNATURE = "serving_default"
METHOD_NAMES = tuple(f"tensorflow/serving/{method}" for method in ("predict", "classify", "regress"))


class PredictCall(NamedTuple):
    """The arguments of one Predict.

    Each input is read once, after the checks that need only the names, so a mapping may decode on access; a StatusError
    that it raises is reported as a tensor parsing error. `check_method_name` rejects a signature that was exported for
    a custom method.
    """

    signature_name: str  # empty for the default signature
    inputs: Mapping[str, Tensor]  # by alias
    output_filter: Sequence[str] = ()  # aliases of the outputs to return; empty for all
    check_method_name: bool = False


class SignatureNotFoundError(StatusError):
    """The model has no signature with this name; FAILED_PRECONDITION, with the text that gRPC's Predict returns."""

    def __init__(self, name: str) -> None:
        super().__init__(Code.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
        self.name = name


_Signature = TypeVar("_Signature")


def find_signature(signatures: Mapping[str, _Signature], name: str) -> _Signature:
    """Return the signature with this name, or the default signature; raises SignatureNotFoundError."""
    key = name or DEFAULT_SIGNATURE
    if key not in signatures:  # a protobuf map would create the value
        raise SignatureNotFoundError(key)
    return signatures[key]


def input_dtypes(signatures: Mapping[str, Any], signature_name: str) -> dict[str, dtypes.DType]:
    """Return the element type of each input of a signature, by alias, which JSON does not carry.

    Raises:
        SignatureNotFoundError: there is no such signature.
        StatusError: INVALID_ARGUMENT if the element type of an input has no tensor encoding.
    """
    inputs = find_signature(signatures, signature_name).inputs
    return {alias: dtypes.of_number(info.dtype) for alias, info in inputs.items()}


def predict(servable: Servable, call: PredictCall, context: RequestContext) -> dict[str, Tensor]:
    """Run a signature and return its outputs by alias."""
    signature = find_signature(servable.tensors, call.signature_name)
    if call.check_method_name and signature.method_name not in METHOD_NAMES:
        raise StatusError(
            Code.INTERNAL,
            f"Expected prediction signature method_name to be one of {{{', '.join(METHOD_NAMES)}}}. "
            f"Was: {signature.method_name}",
        )
    feeds = _read_inputs(signature, call.inputs)
    aliases = _select_outputs(signature, call.output_filter)
    if len(feeds) < len(signature.inputs):  # two inputs name the same tensor: TensorFlow's error (graph/subgraph.cc)
        names = sorted(signature.inputs.values())
        duplicate = next(name for name, following in pairwise(names) if name == following)
        raise invalid_argument(f'Endpoint "{duplicate}" fed more than once.')
    fetches = [signature.outputs[alias] for alias in aliases]
    charged = claims.take_tensors(context, servable, feeds, fetches)
    outputs = run(servable, feeds, fetches, context, api="Predict", charged=charged)
    return dict(zip(aliases, outputs, strict=True))


def run(
    servable: Servable,
    feeds: Mapping[str, Tensor],
    fetches: Sequence[str],
    context: RequestContext,
    *,
    api: str | None,
    charged: Charged,
) -> list[Tensor]:
    """Run a servable once (see `Runtime.run`) and record the run in the metrics, its duration in those of `api`.

    Feeds and fetches are by tensor name.
    """
    context.model_version = servable.version
    started = time.perf_counter()
    try:
        outputs = servable.runtime.run(feeds, fetches, context)
    except StatusError as error:
        if servable.row_counts:
            servable.row_counts.count_failed(feeds, charged.rows, error)
        raise
    if api is not None:
        metrics.time_run(servable.name, api, time.perf_counter() - started)
    if servable.row_counts:
        servable.row_counts.count(feeds, charged.rows, dict(zip(fetches, outputs, strict=True)))
    claims.take_undeclared(context, outputs, charged.declared)
    return outputs


def _read_inputs(signature: SignatureTensors, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors to feed, by tensor name."""
    expected, count = signature.inputs, len(inputs)
    if count > len(expected) or (count < len(expected) and not signature.defaults):
        raise invalid_argument(
            f"input size does not match signature: {count}!={len(expected)} len({_braced(inputs)}) != "
            f"len({_braced(expected)}). Sent extra: {_braced(set(inputs) - set(expected))}. "
            f"Missing but required: {_braced(set(expected) - set(inputs))}."
        )
    feeds = {}
    used = 0
    for alias, name in expected.items():
        is_sent = alias in inputs
        if not is_sent and alias not in signature.defaults:
            raise invalid_argument(
                f"Signature input alias: {alias}(feed name: {name}) not found in request and no "
                f"default value provided. Inputs expected to be in the request {_braced(inputs)}, or default input "
                f"alias set: {','.join(sorted(signature.defaults))}"
            )
        try:
            feeds[name] = inputs[alias] if is_sent else decode_tensor(signature.defaults[alias])
        except OverloadError:
            raise
        except StatusError as error:
            raise invalid_argument(f"tensor parsing error: {alias}") from error
        used += is_sent
    if used < count:
        raise invalid_argument(
            f"Inputs contains invalid name. Used request inputs: {','.join(sorted(set(inputs) & set(expected)))}, "
            f"request input: {','.join(sorted(inputs))}"
        )
    return feeds


def _select_outputs(signature: SignatureTensors, output_filter: Sequence[str]) -> list[str]:
    """Return the aliases of the outputs to fetch."""
    if not output_filter:
        return list(signature.outputs)
    seen: set[str] = set()
    for alias in output_filter:
        if alias not in signature.outputs:
            raise invalid_argument(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in the set "
                f"{_braced(signature.outputs)}."
            )
        if alias in seen:
            raise invalid_argument(f"duplicate output tensor alias: {alias}")
        seen.add(alias)
    return list(output_filter)


def _braced(names: Collection[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
