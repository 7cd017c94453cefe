"""What a port needs to know of a call before its message has arrived: `Rpc` over gRPC, `Route` over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from savedmodel_bakery.serving.admission.context import Handler, RequestContext
from savedmodel_bakery.serving.http.error_responses import error_response
from savedmodel_bakery.serving.http.messages import Request, Response
from savedmodel_bakery.wire.status import StatusError


class Rpc(NamedTuple):
    """A unary call."""

    decode: Callable[..., Any]  # parses the serialized request; raises DecodeError
    handle: Handler  # the SerializeToString of its response may raise StatusError too
    request: Any = None  # the class of the request message; None if its messages are small
    api: str | None = None  # the name of the call in the metrics; None to not count it
    runs_model: bool = False  # such a call waits for its turn
    is_public: bool = False  # callers need no token
    takes_metadata: bool = False  # `decode` takes the call's metadata by key as its second argument


class Route(NamedTuple):
    """Where a request goes."""

    handle: Callable[[Request, RequestContext], Response]  # of a request that is authorized and complete
    model_name: str = ""  # that the URL names, for the metrics
    api: str | None = ""  # the name of the call in the metrics; None to not count the request
    runs_model: bool = False  # such a request waits for its turn
    takes_body: bool = False  # it has a body without running a model
    is_instant: bool = False  # the response is made at once, without a place, so that nobody can prevent it
    is_page: bool = False  # the response is that of the server itself, without the headers of the APIs
    on_error: Callable[[StatusError], Response] = error_response


FindRoute = Callable[[Request], Route | None]
"""Returns where a request goes, by its method and target; None if the URL is not one of this API."""


def _preflight(request: Request, _: RequestContext) -> Response:
    origin = request.headers.get("origin", "")
    return Response(200 if "http://" in origin or "https://" in origin else 400, b"", "text/html; charset=ISO-8859-1")


PREFLIGHT = Route(_preflight, api=None)
"""Responds to OPTIONS, with which browsers ask what they may send, as tensorflow_model_server; CORS headers follow."""
