"""The calls of the v2 protocol on both ports: find the model, call the inference core, encode the result. No sockets.

The gRPC port has the calls of inference.GRPCInferenceService, the REST port the URLs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

from savedmodel_bakery.serving.access.access import LIVE_PATH, READY_PATH
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.admission.parsing import parsing
from savedmodel_bakery.serving.call.call import Rpc
from savedmodel_bakery.serving.call.http import PREFLIGHT, Request, Response, Route, decode_name, method_not_allowed
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry, read_version
from savedmodel_bakery.serving.v2 import descriptions
from savedmodel_bakery.serving.v2.codec import (
    MODEL_PATH,
    UNSUPPORTED_METHODS,
    UNSUPPORTED_PATHS,
    json_response,
    message,
    read_body,
    read_index_request,
    read_query,
    refuse,
)
from savedmodel_bakery.serving.v2.inference import infer
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.v2 import grpc, http_decode, http_encode, schema
from savedmodel_bakery.wire.v2.grpc import ParsedRequest, RawMessage
from savedmodel_bakery.wire.v2.infer import RequestedOutput

_PUBLIC = ("ServerLive", "ServerReady")
_SIGNATURE_HEADER = "signature-name"  # key of gRPC's metadata that chooses the signature of ModelMetadata

_HEADER_LENGTH = http_encode.HEADER_LENGTH.lower()


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


class _Url(NamedTuple):
    """A URL of the protocol."""

    path: str  # a regular expression
    methods: tuple[str, ...]  # empty for all
    handle: Callable[[re.Match[str], Request, RequestContext], Response]
    api: str | None = ""
    runs_model: bool = False
    takes_body: bool = False
    is_instant: bool = False


class HttpHandlers:
    """All URLs."""

    def __init__(self, registry: Registry, *, limits: Limits, check_method_names: bool) -> None:
        self._registry = registry
        self._limits = limits
        self._check_method_names = check_method_names
        self._urls = [
            _Url(LIVE_PATH, ("GET", "HEAD"), self._live, api=None, is_instant=True),
            _Url(READY_PATH, ("GET", "HEAD"), self._ready, api=None, is_instant=True),
            _Url("/v2", ("GET",), self._server_metadata),
            _Url(MODEL_PATH, ("GET",), self._model_metadata),
            _Url(f"{MODEL_PATH}/ready", ("GET",), self._model_ready),
            _Url(f"{MODEL_PATH}/config", ("GET",), self._model_config),
            _Url(f"{MODEL_PATH}/infer", ("POST",), self._infer, api="infer", runs_model=True),
            _Url("/v2/repository/index", ("POST",), self._index, takes_body=True),
            *(_Url(path, (), partial(refuse, reason)) for path, reason in UNSUPPORTED_PATHS.items()),
        ]

    def find(self, request: Request) -> Route | None:
        """Return where a request goes; see `FindRoute`."""
        if not request.path.startswith("/v2"):
            return None
        for url in self._urls:
            match = re.fullmatch(url.path, request.path)
            if match is None:
                continue
            if request.method == "OPTIONS":
                return PREFLIGHT
            if url.methods and request.method not in url.methods:
                handle = partial(method_not_allowed, url.methods)
                return Route(handle, _model_name(match), api=None, is_instant=url.is_instant)
            return Route(
                partial(url.handle, match),
                _model_name(match),
                url.api,
                runs_model=url.runs_model,
                takes_body=url.takes_body,
                is_instant=url.is_instant,
            )
        return None

    def _live(self, _match: re.Match[str], _request: Request, _context: RequestContext) -> Response:
        return json_response({"live": True})

    def _ready(self, _match: re.Match[str], _request: Request, _context: RequestContext) -> Response:
        is_ready = self._registry.is_ready()
        return json_response({"ready": is_ready}, 200 if is_ready else 503)

    def _server_metadata(self, _match: re.Match[str], _request: Request, _context: RequestContext) -> Response:
        return json_response(descriptions.server_metadata())

    def _model_metadata(self, match: re.Match[str], request: Request, context: RequestContext) -> Response:
        with self._registry.acquire(_url_choice(match, context)) as servable:
            return json_response(descriptions.model_metadata(self._registry, servable, read_query(request)))

    def _model_ready(self, match: re.Match[str], _request: Request, context: RequestContext) -> Response:
        with self._registry.acquire(_url_choice(match, context)) as servable:
            return json_response({"name": servable.name, "ready": True})

    def _model_config(self, match: re.Match[str], _request: Request, context: RequestContext) -> Response:
        with self._registry.acquire(_url_choice(match, context)) as servable:
            return json_response(descriptions.model_config(self._registry, servable))

    def _index(self, _match: re.Match[str], request: Request, context: RequestContext) -> Response:
        ready_only = read_index_request(request.body)
        return json_response(descriptions.repository_index(self._registry, context.covers, ready_only=ready_only))

    def _infer(self, match: re.Match[str], request: Request, context: RequestContext) -> Response:
        choice = _url_choice(match, context)
        body = read_body(request, context, self._limits.unpacked_bytes)
        with parsing(context) as limits:
            sent = http_decode.decode_request(body, request.headers.get(_HEADER_LENGTH), limits)
        response = infer(self._registry, choice, sent, context, check_method_names=self._check_method_names)
        requested = sent.outputs or [RequestedOutput(name, sent.is_binary) for name in response.outputs]
        context.charge(http_encode.response_size(response, requested))
        encoded = http_encode.encode_response(response, requested)
        headers = {} if encoded.header_length is None else {http_encode.HEADER_LENGTH: str(encoded.header_length)}
        return Response(200, encoded.content, encoded.content_type, headers)


def _model_name(match: re.Match[str]) -> str:
    return decode_name(match.groupdict().get("model"))


def _url_choice(match: re.Match[str], context: RequestContext) -> ModelChoice:
    """Return the model and version of a URL, which the caller may use."""
    name = _model_name(match)
    context.check_model(name)
    return ModelChoice(name, read_version(decode_name(match["version"])))
