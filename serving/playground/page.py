"""The URLs of the page and of its files."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.methods import Route
from savedmodel_bakery.serving.http.error_responses import method_not_allowed
from savedmodel_bakery.serving.http.messages import NOSNIFF, Request, Response

PATH = "/playground"
_ROOT = "/"
_FILES = {
    PATH: ("playground.html", "text/html; charset=utf-8"),
    f"{PATH}/playground.css": ("playground.css", "text/css; charset=utf-8"),
    f"{PATH}/playground.js": ("playground.js", "text/javascript; charset=utf-8"),
    f"{PATH}/results.js": ("results.js", "text/javascript; charset=utf-8"),
}
PUBLIC_PATHS = (_ROOT, *_FILES)
"""Paths that need no token: the page asks for it, and its requests send it."""

_METHODS = ("GET", "HEAD")
_FOLDER = Path(__file__).parent / "files"
_HEADERS = {
    **NOSNIFF,
    # Only the page's own files; nothing inline; texts never become elements (Trusted Types).
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # another version of the server may follow
}


def find(request: Request) -> Route | None:
    """Return where a request goes; see `FindRoute`."""
    if request.path not in PUBLIC_PATHS:
        return None
    if request.method not in _METHODS:
        return Route(_not_allowed, api=None)
    return Route(_redirect if request.path == _ROOT else partial(_respond, *_FILES[request.path]), api=None)


def _redirect(_request: Request, _context: RequestContext) -> Response:
    location = PATH.removeprefix("/")  # relative, because a proxy may add a prefix
    return Response(302, b"", "text/html; charset=utf-8", {"Location": location, **_HEADERS})


def _respond(name: str, content_type: str, _request: Request, _context: RequestContext) -> Response:
    return Response(200, _read(name), content_type, _HEADERS)


@cache
def _read(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()


def _not_allowed(request: Request, _context: RequestContext) -> Response:
    return method_not_allowed(request, _METHODS)
