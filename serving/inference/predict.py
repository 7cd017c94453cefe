"""Predict: inputs by alias in, outputs by alias out, with tensorflow_model_server's checks in its order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor

DEFAULT_SIGNATURE = "serving_default"
METHOD_NAMES = tuple(f"tensorflow/serving/{method}" for method in ("predict", "classify", "regress"))

Sent = TypeVar("Sent")


def find_signature(servable: Servable, name: str) -> Any:
    """The SignatureDef with this name; empty is the default's.

    Raises:
        StatusError: FAILED_PRECONDITION where there is none.
    """
    try:
        return servable.signatures[name or DEFAULT_SIGNATURE]
    except KeyError:
        raise StatusError(
            Code.FAILED_PRECONDITION, f'Serving signature key "{name or DEFAULT_SIGNATURE}" not found.'
        ) from None


def check_method_name(signature: Any) -> None:
    """Refuse a signature that was exported for a method of its author's own.

    Raises:
        StatusError: INTERNAL.
    """
    if signature.method_name not in METHOD_NAMES:
        raise StatusError(
            Code.INTERNAL,
            f"Expected prediction signature method_name to be one of {{{', '.join(METHOD_NAMES)}}}. "
            f"Was: {signature.method_name}",
        )


def read_inputs(signature: Any, sent: Mapping[str, Sent], decode: Callable[[Any], Tensor]) -> dict[str, Tensor]:
    """What to feed, by tensor name.

    Args:
        signature: a SignatureDef.
        sent: inputs by alias, as the transport has them.
        decode: makes a tensor of one of them, or of a default, which is a TensorProto.

    Raises:
        StatusError: INVALID_ARGUMENT where inputs are missing, too many, unknown or no tensors.
    """
    wanted = signature.inputs
    if len(sent) > len(wanted) or (len(sent) < len(wanted) and not signature.defaults):
        raise invalid_argument(
            f"input size does not match signature: {len(sent)}!={len(wanted)} len({_braced(sent)}) != "
            f"len({_braced(wanted)}). Sent extra: {_braced(set(sent) - set(wanted))}. "
            f"Missing but required: {_braced(set(wanted) - set(sent))}."
        )
    feeds = {}
    for alias in sorted(wanted):
        if alias not in sent and alias not in signature.defaults:
            raise invalid_argument(
                f"Signature input alias: {alias}(feed name: {wanted[alias].name}) not found in request and no default "
                f"value provided. Inputs expected to be in the request {_braced(sent)}, or default input alias set: "
                f"{','.join(sorted(signature.defaults))}"
            )
        try:
            feeds[wanted[alias].name] = decode(sent[alias] if alias in sent else signature.defaults[alias])
        except StatusError as error:
            raise invalid_argument(f"tensor parsing error: {alias}") from error
    if not set(sent) <= set(wanted):
        used = sorted(set(sent) & set(wanted))
        raise invalid_argument(
            f"Inputs contains invalid name. Used request inputs: {','.join(used)}, "
            f"request input: {','.join(sorted(sent))}"
        )
    return feeds


def choose_outputs(signature: Any, output_filter: Sequence[str]) -> list[str]:
    """The aliases to answer: those asked for, or all.

    Raises:
        StatusError: INVALID_ARGUMENT for an alias that is unknown or stands there twice.
    """
    if not output_filter:
        return sorted(signature.outputs)
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


def run(
    servable: Servable, signature: Any, feeds: Mapping[str, Tensor], aliases: Sequence[str], timeout_s: float | None
) -> dict[str, Tensor]:
    """Outputs by alias.

    Raises:
        StatusError: INVALID_ARGUMENT where the signature has one tensor for several inputs; else what the runtime said.
    """
    if len(feeds) < len(signature.inputs):
        names = sorted(info.name for info in signature.inputs.values())
        twice = next(name for name, other in pairwise(names) if name == other)
        raise invalid_argument(f'Endpoint "{twice}" fed more than once.')
    fetches = [signature.outputs[alias].name for alias in aliases]
    return dict(zip(aliases, servable.run(feeds, fetches, api="Predict", timeout_s=timeout_s), strict=True))


def _braced(names: Collection[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
