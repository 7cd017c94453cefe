"""Describes the server and its models as the v2 protocol does: metadata, configuration and the repository's index.

The values are JSON objects; over gRPC, messages with the same fields are made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from savedmodel_bakery.serving.inference.predict import DEFAULT_SIGNATURE
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry, State
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import responses
from savedmodel_bakery.wire.responses import encode_metadata
from savedmodel_bakery.wire.status import StatusError, invalid_argument
from savedmodel_bakery.wire.v2.infer import BINARY_TENSOR_DATA, TENSORFLOW_SERVING_METADATA
from savedmodel_bakery.wire.v2.tensors import of_number, shown

# Triton's names of the extensions that the server supports, at least in part
_EXTENSIONS = (BINARY_TENSOR_DATA, "model_repository", "model_configuration", "parameters")
_PLATFORM = "tensorflow_savedmodel"
_UNKNOWN_RANK = (-1,)
_INIT_SIGNATURE = "__saved_model_init_op"
_CONFIG_TYPES = {"BYTES": "TYPE_STRING"}  # others are TYPE_ and their name
_STATES = {
    State.START: "LOADING",
    State.LOADING: "LOADING",
    State.AVAILABLE: "READY",
    State.UNLOADING: "UNLOADING",
    State.END: "UNAVAILABLE",
}


def server_metadata() -> dict[str, Any]:
    """Return name, version and extensions of the server."""
    return {"name": "savedmodel-bakery", "version": version("savedmodel-bakery"), "extensions": list(_EXTENSIONS)}


def model_metadata(registry: Registry, servable: Servable, signature_name: str) -> dict[str, Any]:
    """Return the metadata of one signature of a model, and the names of all in `parameters`.

    A model without a default signature has no inputs and outputs unless the signature is named.

    Raises:
        StatusError: INVALID_ARGUMENT if there is no such signature, or a tensor's type can't be expressed.
    """
    return {
        "name": servable.name,
        "versions": _versions(registry, servable),
        "platform": _PLATFORM,
        **_ports(servable, signature_name, _metadata_tensor),
        "parameters": {"signature_names": signature_names(servable)},
    }


def model_config(registry: Registry, servable: Servable) -> dict[str, Any]:
    """Return the configuration of a model as the JSON form of Triton's ModelConfig.

    It has no inputs and outputs if there is no default signature, or if the type of one of its tensors can't be
    expressed: the parameter still describes the signatures that can be run.
    """
    try:
        ports = _ports(servable, "", _config_tensor)
    except StatusError:
        ports = {"inputs": [], "outputs": []}
    metadata = responses.make_metadata_response(servable.name, servable.version, servable.signatures)
    return {
        "name": servable.name,
        "platform": _PLATFORM,
        "backend": "tensorflow",
        "version_policy": {"specific": {"versions": list(map(int, _versions(registry, servable)))}},
        "max_batch_size": 0,
        "input": ports["inputs"],
        "output": ports["outputs"],
        "parameters": {TENSORFLOW_SERVING_METADATA: {"string_value": encode_metadata(metadata).decode()}},
    }


def repository_index(registry: Registry, covers: Callable[[str], bool], *, ready_only: bool) -> list[dict[str, str]]:
    """Return every known version of the models that the caller may use, by name and number."""
    rows = []
    for name in sorted(filter(covers, registry.names())):
        for number, state, error in reversed(registry.statuses(ModelChoice(name))):
            if state is State.AVAILABLE or not ready_only:
                reason = error.text if error else ""
                rows.append({"name": name, "version": str(number), "state": _STATES[state], "reason": reason})
    return rows


def signature_names(servable: Servable) -> list[str]:
    """Return the names of the signatures that can be run."""
    return sorted(name for name in servable.signatures if name != _INIT_SIGNATURE)


def signature_not_found(servable: Servable, name: str) -> StatusError:
    """Return the error of a request for a signature that the model does not have."""
    return invalid_argument(
        f"signature {shown(name)} not found in model {shown(servable.name)} version {servable.version}; it has "
        f"{quoted(signature_names(servable))}"
    )


def quoted(names: list[str]) -> str:
    """Return names for an error message."""
    return ", ".join(map(shown, names)) or "none"


def shape(info: Any) -> list[int]:
    """Return the shape of a signature's tensor, with -1 for sizes that may vary; the protocol has no unknown rank."""
    if info.tensor_shape.unknown_rank:
        return list(_UNKNOWN_RANK)
    return [dim.size for dim in info.tensor_shape.dim]


def _versions(registry: Registry, servable: Servable) -> list[str]:
    return [str(number) for number in sorted({*registry.available(servable.name), servable.version})]


def _ports(servable: Servable, signature_name: str, describe: Callable[[str, Any, str], Any]) -> dict[str, Any]:
    """Return the inputs and outputs of a signature."""
    signatures: Mapping[str, Any] = servable.signatures
    name = signature_name or DEFAULT_SIGNATURE
    if name not in signatures:
        if signature_name:
            raise signature_not_found(servable, signature_name)
        return {"inputs": [], "outputs": []}
    return {
        f"{kind}s": [
            describe(alias, info, f"{kind} {shown(alias)} of signature {shown(name)}")
            for alias, info in sorted(infos.items())
        ]
        for kind, infos in (("input", signatures[name].inputs), ("output", signatures[name].outputs))
    }


def _metadata_tensor(alias: str, info: Any, tensor: str) -> dict[str, Any]:
    return {"name": alias, "datatype": of_number(info.dtype, tensor), "shape": shape(info)}


def _config_tensor(alias: str, info: Any, tensor: str) -> dict[str, Any]:
    datatype = of_number(info.dtype, tensor)
    return {"name": alias, "data_type": _CONFIG_TYPES.get(datatype, f"TYPE_{datatype}"), "dims": shape(info)}
