"""The URL of the OpenAPI document, `openapi.json`, which is the same on every server."""

from __future__ import annotations

from pathlib import Path

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.methods import Route
from savedmodel_bakery.serving.http.error_responses import method_not_allowed
from savedmodel_bakery.serving.http.messages import NOSNIFF, Request, Response

PATH = "/openapi.json"
_METHODS = ("GET", "HEAD")
_FILE = Path(__file__).with_name("openapi.json")


def find(request: Request) -> Route | None:
    """Return where a request goes; see `FindRoute`."""
    return Route(_respond, api=None) if request.path == PATH else None


def _respond(request: Request, _context: RequestContext) -> Response:
    if request.method not in _METHODS:
        return method_not_allowed(request, _METHODS)
    return Response(200, _FILE.read_bytes(), headers=NOSNIFF)
