"""The calls of inference.GRPCInferenceService: find the model, call the inference core, encode the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.call import Rpc
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry, read_version
from savedmodel_bakery.serving.v2 import descriptions
from savedmodel_bakery.serving.v2.codec import UNSUPPORTED_METHODS, message, refuse
from savedmodel_bakery.serving.v2.inference import infer
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.v2 import grpc, schema
from savedmodel_bakery.wire.v2.grpc import ParsedRequest, RawMessage

_PUBLIC = ("ServerLive", "ServerReady")
_SIGNATURE_HEADER = "signature-name"  # key of gRPC's metadata that chooses the signature of ModelMetadata


class GrpcHandlers:
    """All calls of the service."""

    def __init__(self, registry: Registry, *, check_method_names: bool) -> None:
        self._registry = registry
        self._check_method_names = check_method_names

    def calls(self) -> dict[str, Rpc]:
        """Return the calls by path."""
        handlers: dict[str, Callable[[Any, RequestContext], Any]] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelConfig": self._model_config,
            "RepositoryIndex": self._index,
        }
        methods = schema.METHODS
        return {
            **{
                methods[name].path: Rpc(methods[name].request.FromString, handle, is_public=name in _PUBLIC)
                for name, handle in handlers.items()
            },
            methods["ModelMetadata"].path: Rpc(_parse_metadata_request, self._model_metadata, takes_metadata=True),
            methods["ModelInfer"].path: Rpc(
                grpc.parse_request, self._infer, schema.ModelInferRequest, api="ModelInfer", runs_model=True
            ),
            # Their messages are not parsed, because nothing of them is used.
            **{methods[name].path: Rpc(bytes, partial(refuse, reason)) for name, reason in UNSUPPORTED_METHODS.items()},
        }

    def _live(self, _request: Any, _context: RequestContext) -> Any:
        return schema.ServerLiveResponse(live=True)

    def _ready(self, _request: Any, _context: RequestContext) -> Any:
        return schema.ServerReadyResponse(ready=self._registry.is_ready())

    def _server_metadata(self, _request: Any, _context: RequestContext) -> Any:
        return message(schema.ServerMetadataResponse, descriptions.server_metadata())

    def _model_ready(self, request: Any, context: RequestContext) -> Any:
        choice = _choice(request.name, request.version, context)
        try:
            with self._registry.acquire(choice):
                return schema.ModelReadyResponse(ready=True)
        except StatusError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            return schema.ModelReadyResponse(ready=False)

    def _model_metadata(self, request: tuple[Any, str], context: RequestContext) -> Any:
        named, signature_name = request
        with self._registry.acquire(_choice(named.name, named.version, context)) as servable:
            metadata = descriptions.model_metadata(self._registry, servable, signature_name)
        return message(schema.ModelMetadataResponse, metadata)

    def _model_config(self, request: Any, context: RequestContext) -> Any:
        with self._registry.acquire(_choice(request.name, request.version, context)) as servable:
            config = descriptions.model_config(self._registry, servable)
        return message(schema.ModelConfigResponse, {"config": config})

    def _index(self, request: Any, context: RequestContext) -> Any:
        rows = descriptions.repository_index(self._registry, context.covers, ready_only=request.ready)
        return message(schema.RepositoryIndexResponse, {"models": rows})

    def _infer(self, parsed: ParsedRequest, context: RequestContext) -> RawMessage:
        choice = _choice(parsed.message.model_name, parsed.message.model_version, context)
        request = grpc.read_request(parsed)
        response = infer(self._registry, choice, request, context, check_method_names=self._check_method_names)
        return grpc.encode_response(response)


def _parse_metadata_request(content: bytes, metadata: Mapping[str, str | bytes]) -> tuple[Any, str]:
    """Return a ModelMetadataRequest and the signature that the call's metadata name."""
    name = unquote(str(metadata.get(_SIGNATURE_HEADER, "")), errors="surrogateescape")
    return schema.ModelMetadataRequest.FromString(content), name


def _choice(name: str, version: str, context: RequestContext) -> ModelChoice:
    """Return a model and its version, which the caller may use."""
    context.check_model(name)
    return ModelChoice(name, read_version(version))
