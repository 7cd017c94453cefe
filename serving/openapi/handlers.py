"""The URL of the OpenAPI document."""

from __future__ import annotations

import json
from functools import cache

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.http.errors import method_not_allowed
from savedmodel_bakery.serving.http.messages import NOSNIFF, Request, Response
from savedmodel_bakery.serving.http.routes import Route
from savedmodel_bakery.serving.openapi.document import document

PATH = "/openapi.json"
_METHODS = ("GET", "HEAD")


def find(request: Request) -> Route | None:
    """Return where a request goes; see `FindRoute`."""
    return Route(_respond, api=None) if request.path == PATH else None


def _respond(request: Request, _context: RequestContext) -> Response:
    return (
        Response(200, _body(), headers=NOSNIFF) if request.method in _METHODS else method_not_allowed(request, _METHODS)
    )


@cache
def _body() -> bytes:
    return json.dumps(document(), separators=(",", ":")).encode()
