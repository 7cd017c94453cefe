"""The URLs of the page and of its files."""

from __future__ import annotations

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
    return Route(_respond, api=None) if request.path in PUBLIC_PATHS else None


def _respond(request: Request, _context: RequestContext) -> Response:
    if request.method not in _METHODS:
        return method_not_allowed(request, _METHODS)
    if request.path == _ROOT:
        location = PATH.removeprefix("/")  # relative, because a proxy may add a prefix
        return Response(302, b"", "text/html; charset=utf-8", {"Location": location, **_HEADERS})
    name, content_type = _FILES[request.path]
    return Response(200, (_FOLDER / name).read_bytes(), content_type, _HEADERS)
