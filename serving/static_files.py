"""The URLs of the files in `static`: the page in which a person tries a server's models, and the OpenAPI document."""

from __future__ import annotations

from pathlib import Path

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.http import NOSNIFF, Request, Response, Route, method_not_allowed

OPENAPI = "/openapi.json"
PLAYGROUND = "/playground"
_ROOT = "/"
_FILES = {
    OPENAPI: ("openapi.json", "application/json"),
    PLAYGROUND: ("playground.html", "text/html; charset=utf-8"),
    f"{PLAYGROUND}/playground.css": ("playground.css", "text/css; charset=utf-8"),
    f"{PLAYGROUND}/playground.js": ("playground.js", "text/javascript; charset=utf-8"),
    f"{PLAYGROUND}/results.js": ("results.js", "text/javascript; charset=utf-8"),
}
PLAYGROUND_PATHS = (_ROOT, *(path for path in _FILES if path != OPENAPI))
"""Paths that need no token: the page asks for it, and its requests send it."""

_METHODS = ("GET", "HEAD")
_FOLDER = Path(__file__).parent / "static"
_PLAYGROUND_HEADERS = {
    **NOSNIFF,
    # Only the page's own files; nothing inline; texts never become elements (Trusted Types).
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # another version of the server may follow
}


def find_openapi(request: Request) -> Route | None:
    """Return where a request for the OpenAPI document goes, which is the same on every server; see `FindRoute`."""
    return Route(_respond, api=None) if request.path == OPENAPI else None


def find_playground(request: Request) -> Route | None:
    """Return where a request for a file of the playground goes; see `FindRoute`."""
    return Route(_respond, api=None) if request.path in PLAYGROUND_PATHS else None


def _respond(request: Request, context: RequestContext) -> Response:
    if request.method not in _METHODS:
        return method_not_allowed(_METHODS, request, context)
    if request.path == _ROOT:
        location = PLAYGROUND.removeprefix("/")  # relative, because a proxy may add a prefix
        return Response(302, b"", "text/html; charset=utf-8", {"Location": location, **_PLAYGROUND_HEADERS})
    name, content_type = _FILES[request.path]
    headers = NOSNIFF if request.path == OPENAPI else _PLAYGROUND_HEADERS
    return Response(200, (_FOLDER / name).read_bytes(), content_type, headers)
