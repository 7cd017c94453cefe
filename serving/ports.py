"""The ports of the server: gRPC and REST, each with all the APIs that it serves.

REST also serves the files in `static`: the OpenAPI document, and the page in which a person tries a server's models.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from savedmodel_bakery.serving.access.access import PUBLIC_PATHS
from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.call import Entrypoint
from savedmodel_bakery.serving.call.http import NOSNIFF, Request, Response, Route, method_not_allowed
from savedmodel_bakery.serving.clouds.routes import CloudRoutes
from savedmodel_bakery.serving.grpc.server import GrpcServer
from savedmodel_bakery.serving.grpc.services import Profiler, Reload, service_calls
from savedmodel_bakery.serving.models.registry import Registry
from savedmodel_bakery.serving.options.flags import CommandLine
from savedmodel_bakery.serving.options.settings import Settings
from savedmodel_bakery.serving.photos import PhotoHandlers
from savedmodel_bakery.serving.prediction_service import PredictionService
from savedmodel_bakery.serving.rest.rest_api import RestApi
from savedmodel_bakery.serving.rest.router import Router
from savedmodel_bakery.serving.rest.server import RestServer
from savedmodel_bakery.serving.telemetry import state
from savedmodel_bakery.serving.telemetry.requests import Requests
from savedmodel_bakery.serving.v2 import handlers as v2

logger = logging.getLogger(__name__)

_OPENAPI = "/openapi.json"
_PLAYGROUND = "/playground"
_ROOT = "/"
_STATIC_FILES = {
    _OPENAPI: ("openapi.json", "application/json"),
    _PLAYGROUND: ("playground.html", "text/html; charset=utf-8"),
    f"{_PLAYGROUND}/playground.css": ("playground.css", "text/css; charset=utf-8"),
    f"{_PLAYGROUND}/playground.js": ("playground.js", "text/javascript; charset=utf-8"),
    f"{_PLAYGROUND}/results.js": ("results.js", "text/javascript; charset=utf-8"),
}
PLAYGROUND_PATHS = (_ROOT, *(path for path in _STATIC_FILES if path != _OPENAPI))
"""Paths that need no token: the page asks for it, and its requests send it."""

_STATIC_METHODS = ("GET", "HEAD")
_STATIC = Path(__file__).parent / "static"
_PLAYGROUND_HEADERS = {
    **NOSNIFF,
    # Only the page's own files; nothing inline; texts never become elements (Trusted Types).
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # another version of the server may follow
}


def start_grpc(
    flags: CommandLine,
    settings: Settings,
    registry: Registry,
    reload: Reload,
    admission: Admission,
    requests: Requests | None,
) -> GrpcServer:
    """Start the gRPC server; raises StatusError if it can't listen."""
    bind_address, port, path = flags.text("bind_address"), flags.integer("port"), flags.text("grpc_socket_path")
    addresses = []
    if port:
        addresses.append(f"[{bind_address}]:{port}" if ":" in bind_address else f"{bind_address}:{port}")
    if path:
        if Path(path).is_socket():
            Path(path).unlink()  # left behind by a server that was killed
        addresses.append(f"unix:{path}")
    state.watch_admission("GRPC", admission)
    service = PredictionService(
        registry,
        packed=flags.on("enable_serialization_as_tensor_content"),
        check_method_names=flags.on("enable_signature_method_name_check"),
    )
    calls = {
        **service_calls(service, reload),
        **v2.GrpcHandlers(registry, check_method_names=flags.on("enable_signature_method_name_check")).calls(),
        **(Profiler().calls() if flags.on("enable_profiler") else {}),
    }
    server = GrpcServer(
        calls,
        addresses,
        Entrypoint("GRPC", registry.known_name, requests),
        access=settings.access,
        admission=admission,
        arguments=flags.text("grpc_channel_arguments"),
        tls=settings.tls,
        health=flags.on("enable_grpc_healthcheck_service"),
    )
    server.start()
    if port:
        logger.info("Running gRPC ModelServer at %s:%d ...", bind_address, port)
    if path:
        logger.info("Running gRPC ModelServer at UNIX socket %s ...", path)
    return server


def start_rest(
    flags: CommandLine, settings: Settings, registry: Registry, admission: Admission, requests: Requests | None
) -> RestServer | None:
    """Start the REST server; return None if it is disabled or can't listen, in which case only gRPC runs."""
    port = flags.integer("rest_api_port")
    if not port:
        return None
    if port == flags.integer("port"):
        logger.error("rest_api_port cannot be same as grpc port.")
        return None
    timeout_ms = flags.integer("rest_api_timeout_in_ms")
    timeout_s = timeout_ms / 1000 if timeout_ms > 0 else None
    options: dict[str, Any] = {
        "limits": admission.limits,
        "check_method_names": flags.on("enable_signature_method_name_check"),
    }
    with_playground = flags.on("enable_playground")
    health_route, predict_route = flags.text("health_route"), flags.text("predict_route")
    apis = [
        RestApi(registry, **options).find,
        v2.HttpHandlers(registry, **options).find,
        PhotoHandlers(registry).find,
    ]
    first_model = next(iter(settings.models or ()), "")
    router = Router(
        [
            # First, because by default the routes of Vertex AI are below /v1/.
            CloudRoutes(health_route, predict_route, model_name=first_model, apis=apis).find,
            *apis,
            find_openapi,
            *([find_playground] if with_playground else []),
        ],
        access=settings.access,
        cors=flags.on("rest_api_enable_cors_support"),
        metrics_path=settings.metrics_path,
        predict_path=predict_route or None,
        allowed_hosts=[name.strip().lower() for name in flags.text("allowed_hosts").split(",") if name.strip()],
        public_paths=(
            *PUBLIC_PATHS,
            *([health_route] if health_route else []),
            *(PLAYGROUND_PATHS if with_playground else ()),
        ),
    )
    try:
        server = RestServer(
            router,
            flags.text("bind_address"),
            port,
            admission,
            Entrypoint("REST", registry.known_name, requests),
            timeout_s=timeout_s,
            tls=settings.rest_tls,
        )
    except OSError as error:
        logger.error("Failed to start HTTP Server at %s:%d: %s", flags.text("bind_address"), port, error.strerror)
        return None
    state.watch_admission("REST", admission)
    server.start()
    logger.info("Exporting HTTP/REST API at:localhost:%d ...", port)
    if with_playground:
        logger.info("The playground is at %s of this port", _PLAYGROUND)
    return server


def find_openapi(request: Request) -> Route | None:
    """Return where a request for the OpenAPI document goes, which is the same on every server; see `FindRoute`."""
    return Route(_send_file, api=None) if request.path == _OPENAPI else None


def find_playground(request: Request) -> Route | None:
    """Return where a request for a file of the playground goes; see `FindRoute`."""
    return Route(_send_file, api=None) if request.path in PLAYGROUND_PATHS else None


def _send_file(request: Request, context: RequestContext) -> Response:
    if request.method not in _STATIC_METHODS:
        return method_not_allowed(_STATIC_METHODS, request, context)
    if request.path == _ROOT:
        location = _PLAYGROUND.removeprefix("/")  # relative, because a proxy may add a prefix
        return Response(302, b"", "text/html; charset=utf-8", {"Location": location, **_PLAYGROUND_HEADERS})
    name, content_type = _STATIC_FILES[request.path]
    headers = NOSNIFF if request.path == _OPENAPI else _PLAYGROUND_HEADERS
    return Response(200, (_STATIC / name).read_bytes(), content_type, headers)
