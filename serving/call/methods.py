"""What a port needs to know of a call before its message has arrived: `Rpc` over gRPC, `Route` over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from savedmodel_bakery.serving.admission.context import Handler, RequestContext
from savedmodel_bakery.serving.http.error_responses import error_response
from savedmodel_bakery.serving.http.messages import Request, Response
from savedmodel_bakery.serving.telemetry import metrics
from savedmodel_bakery.wire.status import Code, StatusError


class Rpc(NamedTuple):
    """A unary call.

    Attributes:
        decode: parses the serialized request; raises DecodeError. If `takes_metadata`, its second argument is the
            call's metadata by key.
        handle: makes the response message, whose SerializeToString may raise too; raises StatusError.
        request: the class of the request message; None if its messages are small.
        runs_model: whether the call runs a model, and so waits for its turn.
        is_public: whether callers need no token.
        takes_metadata: see `decode`.
    """

    decode: Callable[..., Any]
    handle: Handler
    request: Any = None
    runs_model: bool = False
    is_public: bool = False
    takes_metadata: bool = False


def counted(api: str, handle: Handler, model_name: Callable[[Any], str]) -> Handler:
    """Return a handler that also records each call in the metrics.

    Args:
        api: the name of the call in the metrics.
        handle: the handler.
        model_name: returns the name of the model of a request for the metrics.
    """

    def count(request: Any, context: RequestContext) -> Any:
        started, code = time.perf_counter(), Code.INTERNAL
        try:
            response = handle(request, context)
            code = Code.OK
        except StatusError as error:
            code = error.code
            raise
        finally:
            metrics.count_request(model_name(request), api, "GRPC", code, time.perf_counter() - started)
        return response

    return count


class Route(NamedTuple):
    """Where a request goes.

    Attributes:
        handle: makes the response to a request that is authorized and complete; raises StatusError.
        model_name: that the URL names, for the metrics; empty if it names none.
        api: the name of the call in the metrics; None to not count the request.
        runs_model: whether the request runs a model, and so waits for its turn.
        takes_body: whether the request has a body without running a model.
        on_error: makes the response for an error.
    """

    handle: Callable[[Request, RequestContext], Response]
    model_name: str = ""
    api: str | None = ""
    runs_model: bool = False
    takes_body: bool = False
    on_error: Callable[[StatusError], Response] = error_response


FindRoute = Callable[[Request], Route | None]
"""Returns where a request goes, by its method and target; None if the URL is not one of this API."""


def _preflight(request: Request, _: RequestContext) -> Response:
    origin = request.headers.get("origin", "")
    return Response(200 if "http://" in origin or "https://" in origin else 400, b"", "text/html; charset=ISO-8859-1")


PREFLIGHT = Route(_preflight, api=None)
"""Responds to OPTIONS, with which browsers ask what they may send, as tensorflow_model_server; CORS headers follow."""
