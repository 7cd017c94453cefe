"""What a port needs to know of a call before its message has arrived: `Rpc` over gRPC, `Route` over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from savedmodel_bakery.serving.admission.context import Handler, RequestContext
from savedmodel_bakery.serving.http.error_responses import error_response
from savedmodel_bakery.serving.http.messages import Request, Response
from savedmodel_bakery.wire.status import StatusError


class Rpc(NamedTuple):
    """A unary call.

    Attributes:
        decode: parses the serialized request; raises DecodeError. If `takes_metadata`, its second argument is the
            call's metadata by key.
        handle: makes the response message, whose SerializeToString may raise too; raises StatusError.
        request: the class of the request message; None if its messages are small.
        api: the name of the call in the metrics; None to not count it.
        runs_model: whether the call runs a model, and so waits for its turn.
        is_public: whether callers need no token.
        takes_metadata: see `decode`.
    """

    decode: Callable[..., Any]
    handle: Handler
    request: Any = None
    api: str | None = None
    runs_model: bool = False
    is_public: bool = False
    takes_metadata: bool = False


class Route(NamedTuple):
    """Where a request goes.

    Attributes:
        handle: makes the response to a request that is authorized and complete; raises StatusError.
        model_name: that the URL names, for the metrics; empty if it names none.
        api: the name of the call in the metrics; None to not count the request.
        runs_model: whether the request runs a model, and so waits for its turn.
        takes_body: whether the request has a body without running a model.
        is_instant: whether the response is made at once, without a place, so that nobody can prevent it.
        is_page: whether the response is that of the server itself, without the headers of the APIs.
        on_error: makes the response for an error.
    """

    handle: Callable[[Request, RequestContext], Response]
    model_name: str = ""
    api: str | None = ""
    runs_model: bool = False
    takes_body: bool = False
    is_instant: bool = False
    is_page: bool = False
    on_error: Callable[[StatusError], Response] = error_response


FindRoute = Callable[[Request], Route | None]
"""Returns where a request goes, by its method and target; None if the URL is not one of this API."""


def _preflight(request: Request, _: RequestContext) -> Response:
    origin = request.headers.get("origin", "")
    return Response(200 if "http://" in origin or "https://" in origin else 400, b"", "text/html; charset=ISO-8859-1")


PREFLIGHT = Route(_preflight, api=None)
"""Responds to OPTIONS, with which browsers ask what they may send, as tensorflow_model_server; CORS headers follow."""
