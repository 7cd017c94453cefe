"""The URLs of the v2 protocol: find the model, call the inference core, encode the result. No sockets."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from savedmodel_bakery.serving.access.required_roles import LIVE_PATH, READY_PATH
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.documents import parsing
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.call.methods import PREFLIGHT, Route
from savedmodel_bakery.serving.http.error_responses import method_not_allowed
from savedmodel_bakery.serving.http.messages import Request, Response, decode_name
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry, read_version
from savedmodel_bakery.serving.v2 import descriptions, unsupported
from savedmodel_bakery.serving.v2.codec import json_response, read_body, read_index_request, read_query
from savedmodel_bakery.serving.v2.inference import infer
from savedmodel_bakery.wire.v2 import http_decode, http_encode
from savedmodel_bakery.wire.v2.infer import RequestedOutput

_MODEL = r"/v2/models/(?P<model>[^/:]+)(?:/versions/(?P<version>[^/:]+))?"
_HEADER_LENGTH = http_encode.HEADER_LENGTH.lower()

Handle = Callable[[Request, RequestContext, re.Match[str]], Response]


class _Url(NamedTuple):
    """A URL of the protocol.

    Attributes:
        path: what the path must match.
        methods: the HTTP methods that it has; empty for all.
        handle: makes the response.
        api: the name of the call in the metrics; None to not count it.
        runs_model: whether it runs a model.
        takes_body: whether it has a body without running a model.
        is_instant: whether it is answered at once, whatever else runs.
    """

    path: re.Pattern[str]
    methods: tuple[str, ...]
    handle: Handle
    api: str | None = ""
    runs_model: bool = False
    takes_body: bool = False
    is_instant: bool = False


class HttpHandlers:
    """All URLs.

    Args:
        registry: the loaded models.
        limits: of each request.
        check_method_names: reject signatures that were exported for another method.
    """

    def __init__(self, registry: Registry, *, limits: Limits, check_method_names: bool) -> None:
        self._registry = registry
        self._limits = limits
        self._check_method_names = check_method_names
        self._urls = [
            _url(LIVE_PATH, ("GET", "HEAD"), self._live, api=None, is_instant=True),
            _url(READY_PATH, ("GET", "HEAD"), self._ready, api=None, is_instant=True),
            _url("/v2", ("GET",), self._server_metadata),
            _url(_MODEL, ("GET",), self._model_metadata),
            _url(f"{_MODEL}/ready", ("GET",), self._model_ready),
            _url(f"{_MODEL}/config", ("GET",), self._model_config),
            _url(f"{_MODEL}/infer", ("POST",), self._infer, api="infer", runs_model=True),
            _url("/v2/repository/index", ("POST",), self._index, takes_body=True),
            *_missing(),
        ]

    def find(self, request: Request) -> Route | None:
        """Return where a request goes; see `FindRoute`."""
        if not request.path.startswith("/v2"):
            return None
        for url in self._urls:
            match = url.path.fullmatch(request.path)
            if match and request.method == "OPTIONS":
                return PREFLIGHT
            if match:
                is_allowed = not url.methods or request.method in url.methods
                handle = url.handle if is_allowed else partial(_not_allowed, url.methods)
                return Route(
                    partial(_call, handle, match),
                    _model_name(match),
                    url.api if is_allowed else None,
                    runs_model=url.runs_model and is_allowed,
                    takes_body=url.takes_body and is_allowed,
                    is_instant=url.is_instant,
                )
        return None

    def _live(self, _request: Request, _context: RequestContext, _match: re.Match[str]) -> Response:
        return json_response({"live": True})

    def _ready(self, _request: Request, _context: RequestContext, _match: re.Match[str]) -> Response:
        is_ready = self._registry.is_ready()
        return json_response({"ready": is_ready}, 200 if is_ready else 503)

    def _server_metadata(self, _request: Request, _context: RequestContext, _match: re.Match[str]) -> Response:
        return json_response(descriptions.server_metadata())

    def _model_metadata(self, request: Request, context: RequestContext, match: re.Match[str]) -> Response:
        with self._registry.acquire(_choice(match, context)) as servable:
            return json_response(descriptions.model_metadata(self._registry, servable, read_query(request)))

    def _model_ready(self, _request: Request, context: RequestContext, match: re.Match[str]) -> Response:
        choice = _choice(match, context)
        with self._registry.acquire(choice) as servable:
            return json_response({"name": servable.name, "ready": True})

    def _model_config(self, _request: Request, context: RequestContext, match: re.Match[str]) -> Response:
        with self._registry.acquire(_choice(match, context)) as servable:
            return json_response(descriptions.model_config(self._registry, servable))

    def _index(self, request: Request, context: RequestContext, _match: re.Match[str]) -> Response:
        ready_only = read_index_request(request.body)
        return json_response(descriptions.repository_index(self._registry, context.covers, ready_only=ready_only))

    def _infer(self, request: Request, context: RequestContext, match: re.Match[str]) -> Response:
        choice = _choice(match, context)
        body = read_body(request, context, self._limits.unpacked_bytes)
        with parsing(context) as limits:
            sent = http_decode.decode_request(body, request.headers.get(_HEADER_LENGTH), limits)
        response = infer(self._registry, choice, sent, context, check_method_names=self._check_method_names)
        requested = sent.outputs or [RequestedOutput(name, sent.is_binary) for name in response.outputs]
        context.charge(http_encode.response_size(response, requested))
        encoded = http_encode.encode_response(response, requested)
        headers = {} if encoded.header_length is None else {http_encode.HEADER_LENGTH: str(encoded.header_length)}
        return Response(200, encoded.content, encoded.content_type, headers)


def _url(path: str, methods: tuple[str, ...], handle: Handle, **options: Any) -> _Url:
    return _Url(re.compile(path), methods, handle, **options)


def _missing() -> list[_Url]:
    """Return the URLs of Triton's extensions that the server does not offer."""
    return [
        _url(path, (), partial(_raise, reason))
        for path, reason in (
            (r"/v2/repository/models/[^/]+/(?:load|unload)", unsupported.LOAD),
            (rf"{_MODEL}/stats", unsupported.STATISTICS),
            (rf"{_MODEL}/generate(?:_stream)?", unsupported.GENERATE),
            (rf"(?:{_MODEL}|/v2)/trace/setting", unsupported.TRACING),
            (r"/v2/logging", unsupported.TRACING),
            (r"/v2/(?:system|cuda)sharedmemory/.*", unsupported.SHARED_MEMORY),
        )
    ]


def _raise(reason: str, _request: Request, _context: RequestContext, _match: re.Match[str]) -> Response:
    raise unsupported.unimplemented(reason)


def _not_allowed(
    methods: tuple[str, ...], request: Request, _context: RequestContext, _match: re.Match[str]
) -> Response:
    return method_not_allowed(request, methods)


def _call(handle: Handle, match: re.Match[str], request: Request, context: RequestContext) -> Response:
    return handle(request, context, match)


def _model_name(match: re.Match[str]) -> str:
    return decode_name(match.groupdict().get("model"))


def _choice(match: re.Match[str], context: RequestContext) -> ModelChoice:
    """Return the model and version of a URL, which the caller may use."""
    name = _model_name(match)
    context.check_model(name)
    return ModelChoice(name, read_version(decode_name(match["version"])))
