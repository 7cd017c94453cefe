"""Unary calls over gRPC, for its port and for every service that is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from savedmodel_bakery.serving.admission.context import Handler, RequestContext
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
