"""Unary calls over gRPC, for its port and for every service that is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from savedmodel_bakery.serving.admission.context import RequestContext


class Rpc(NamedTuple):
    """A unary call.

    Attributes:
        decode: parses the serialized request; raises DecodeError. If `takes_metadata`, its second argument is the
            call's metadata by key.
        handle: makes the response message, whose SerializeToString may raise too; raises StatusError.
        runs_model: whether the call runs a model, and so waits for its turn.
        is_public: whether callers need no token.
        takes_metadata: see `decode`.
    """

    decode: Callable[..., Any]
    handle: Callable[[Any, RequestContext], Any]
    runs_model: bool = False
    is_public: bool = False
    takes_metadata: bool = False
