"""The requests of the v2 protocol behind each call, the same over HTTP and gRPC. Does no I/O.

Source: the Open Inference Protocol, and Triton's extensions "model configuration" and "model repository". The results
of all requests but ModelInfer are documents: the protocol's JSON, or the gRPC message as protobuf JSON.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.signatures import DEFAULT_SIGNATURE
from savedmodel_bakery.client.calls import Call, Classify, Metadata, ModelSpec, Predict, Regress, VersionStatus
from savedmodel_bakery.client.transports.transport import detach, filter_outputs
from savedmodel_bakery.errors import AccessDeniedError, ClientError, InvalidResponseError, RequestRefusedError
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.v2.infer import TENSORFLOW_SERVING_METADATA, InferResponse
from savedmodel_bakery.wire.v2.tensors import to_dtype

_MAX_DIGITS = 19  # int() rejects thousands of digits

NO_V2 = "tensorflow_model_server has no v2 protocol: use the transport grpc or rest"
"""Advice for a server that does not implement a request."""

_NO_METHOD = ("", "Method not found!")
"""What gRPC's servers in C++ and in Python say of a method that they don't know."""

_STATES = {"READY": "AVAILABLE", "UNAVAILABLE": "END"}
"""TensorFlow Serving's names of states, where they differ."""


@dataclass(frozen=True)
class Request:
    """A request by its name over gRPC (ModelConfig and RepositoryIndex are of extensions), and what ModelInfer runs."""

    method: str
    spec: ModelSpec
    call: Predict | None = None


def exchange(call: Call) -> Generator[Request, Any, Any]:
    """Return the flow of a call, whose result is that of the call."""
    if isinstance(call, Classify | Regress):
        raise RequestRefusedError(
            Code.UNIMPLEMENTED,
            f"the v2 protocol has no {type(call).__name__}: use the transport grpc or rest, or run the signature with "
            "predict",
        )
    if call.spec.label is not None:
        raise RequestRefusedError(
            Code.UNIMPLEMENTED,
            f'label "{call.spec.label}": the v2 protocol has no version labels; use a version number, or the transport '
            "grpc or rest",
        )
    try:
        if isinstance(call, Predict):
            return read_prediction(call, (yield start(call)))
        return (yield from _metadata(call.spec) if isinstance(call, Metadata) else _status(call.spec))
    except RequestRefusedError as exc:
        if exc.code is not Code.UNIMPLEMENTED or exc.message not in _NO_METHOD:
            raise
        raise RequestRefusedError(exc.code, "; ".join(filter(None, [exc.message, NO_V2]))) from exc


def model_names() -> Generator[Request, Any, list[str]]:
    """Return the flow that lists the server's models, in order."""
    rows = yield Request("RepositoryIndex", ModelSpec("any"))  # a request without a model
    try:
        return sorted({str(row["name"]) for row in rows})
    except (KeyError, TypeError) as exc:
        raise InvalidResponseError(f"the index is not a valid repository index: {exc!r}") from exc


def start(call: Predict) -> Request:
    """Return the request of a Predict call, unless it names a signature to a server that would ignore the name."""
    if call.declared is None and call.signature != DEFAULT_SIGNATURE:
        raise RequestRefusedError(
            Code.FAILED_PRECONDITION,
            f'signature "{call.signature}" not found in model "{call.spec.name}": the server does not describe the '
            f'signatures of this model; only "{DEFAULT_SIGNATURE}" can be run. {NO_V2}',
        )
    return Request("ModelInfer", call.spec, call)


def signature_parameter(call: Predict) -> str:
    """Return the parameter to send: empty for the default signature, since other servers have no signatures."""
    return "" if call.signature == DEFAULT_SIGNATURE else call.signature


def read_prediction(call: Predict, response: InferResponse) -> Prediction:
    """Return the result of a Predict call. Servers may ignore the output filter, so it is applied here too."""
    for name, tensor in response.outputs.items():
        if tensor.shape is not None:
            raise InvalidResponseError(f'numpy cannot have the shape of output "{name}": {list(tensor.shape)}')
    arrays = {name: tensor.array for name, tensor in response.outputs.items()}
    version = _version(response.model_version)
    return Prediction(
        arrays={name: detach(array) for name, array in filter_outputs(arrays, call.output_filter).items()},
        model=response.model_name or call.spec.name,
        version=call.spec.version if version is None else version,
        signature=call.signature,
    )


def _metadata(spec: ModelSpec) -> Generator[Request, Any, dict[str, Any]]:
    """Return GetModelMetadataResponse as protobuf JSON: that of our server, or what a v2 server's metadata state."""
    try:
        config = yield Request("ModelConfig", spec)
    except (RequestRefusedError, InvalidResponseError) as exc:
        check_missing(exc)
        config = {}
    try:
        text = config.get("parameters", {}).get(TENSORFLOW_SERVING_METADATA, {}).get("string_value")
        if text is None:
            return _as_signatures(spec, (yield Request("ModelMetadata", spec)))
        document: dict[str, Any] = json.loads(text)
        return document
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise InvalidResponseError(f"the metadata are not valid metadata of the v2 protocol: {exc!r}") from exc


def _as_signatures(spec: ModelSpec, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a server without signatures. Without inputs and outputs there are no signatures at all."""
    tensors = {role: _tensors(metadata.get(role) or ()) for role in ("inputs", "outputs")}
    versions = [spec.version] if spec.version is not None else _versions(metadata)
    known = {} if versions[0] is None else {"version": str(versions[0])}
    return {
        "model_spec": {"name": spec.name, **known},
        "metadata": {"signature_def": {"signature_def": {DEFAULT_SIGNATURE: tensors} if any(tensors.values()) else {}}},
    }


def _tensors(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        entry["name"]: {
            "dtype": _dtype_name(entry["datatype"]),
            "tensor_shape": {"dim": [{"size": str(int(size))} for size in entry.get("shape") or ()]},
        }
        for entry in entries
    }


def _dtype_name(datatype: str) -> str:
    try:
        return to_dtype(datatype, "tensor").enum_name
    except StatusError:
        return "DT_INVALID"  # a datatype of another extension


def _status(spec: ModelSpec) -> Generator[Request, Any, list[VersionStatus]]:
    """Return the state of a model's versions, newest first: those in the index, or those that the metadata list."""
    try:
        rows = yield Request("RepositoryIndex", spec)
    except (RequestRefusedError, InvalidResponseError) as exc:
        check_missing(exc)
        return (yield from _status_without_index(spec))
    try:
        versions = [_row_status(row) for row in rows if row["name"] == spec.name]
    except (AttributeError, KeyError, TypeError) as exc:
        raise InvalidResponseError(f"the index is not a valid repository index: {exc!r}") from exc
    versions = [status for status in versions if spec.version in (None, status.version)]
    if not versions:
        missing = "any versions" if spec.version is None else f"version {spec.version}"
        raise RequestRefusedError(Code.NOT_FOUND, f"Could not find {missing} of model {spec.name}")  # GetModelStatus's
    return sorted(versions, key=lambda status: -1 if status.version is None else status.version, reverse=True)


def _status_without_index(spec: ModelSpec) -> Generator[Request, Any, list[VersionStatus]]:
    metadata = yield Request("ModelMetadata", spec)
    try:
        is_ready = bool((yield Request("ModelReady", spec)).get("ready", True))
    except (RequestRefusedError, InvalidResponseError) as exc:  # over HTTP the status says it, with any body or none
        if isinstance(exc, AccessDeniedError):
            raise
        is_ready = False
    versions = _versions(metadata) if spec.version is None else [spec.version]
    return [VersionStatus(version, "AVAILABLE" if is_ready else "LOADING", Code.OK, "") for version in versions]


def _row_status(row: Mapping[str, Any]) -> VersionStatus:
    # Triton states none for models that it has not loaded; MLServer's are "State.READY" over gRPC.
    state = (row.get("state") or "UNAVAILABLE").rpartition(".")[2]
    reason = row.get("reason") or ""
    is_failed = state in ("UNAVAILABLE", "LOADING") and reason != ""
    return VersionStatus(
        _version(row.get("version")), _STATES.get(state, state), Code.UNKNOWN if is_failed else Code.OK, reason
    )


def _versions(metadata: Mapping[str, Any]) -> list[int | None]:
    """Return the numbers in a model's list of versions, newest first; None alone if there are none."""
    numbers = [number for number in map(_version, metadata.get("versions") or ()) if number is not None]
    return [*sorted(numbers, reverse=True)] or [None]


def _version(text: object) -> int | None:
    """Return a version number; None for the names that other servers allow."""
    if not isinstance(text, str) or len(text) > _MAX_DIGITS or not text.isascii() or not text.isdecimal():
        return None
    return int(text)


def check_missing(exc: ClientError) -> None:
    """Raise an error again unless it may mean that the server does not implement a request."""
    if isinstance(exc, RequestRefusedError) and exc.code not in (Code.NOT_FOUND, Code.UNIMPLEMENTED):
        raise exc
