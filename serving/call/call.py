"""The steps of a call, from its arrival to its end. Knows no protocol.

A transport receives the message of a call and sends its response; all that happens between is here, in this order:

1. A `Call` begins when its headers have arrived. From then on it is observed and has a context.
2. `identify`: its caller is known and may make it.
3. `enter`: it takes a place, or is rejected. Then the transport receives its message, for which it is charged.
4. `handle`: it runs. A call that runs a model waits for its turn first (`Admission.turn`).
5. `fail`: if one of these steps raises an error, the error becomes the status of the call.
6. `leave`: it gives its place back and is counted. Then the transport sends the response.
7. `end`: its line in the access log is written. The transport closes the context when the response has been sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from savedmodel_bakery.serving.access.access import Identity
from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.context import Handler, RequestContext
from savedmodel_bakery.serving.telemetry import metrics
from savedmodel_bakery.serving.telemetry.requests import Entry, Requests, report_exception
from savedmodel_bakery.wire.status import Code, StatusError

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")

logger = logging.getLogger(__name__)


class Entrypoint(NamedTuple):
    """What all calls of a transport share."""

    name: str  # GRPC or REST, in the metrics
    known_name: Callable[[str], str]  # from a model's name to its name in the metrics; empty if it is unknown
    requests: Requests | None = None  # None to observe no calls


class Rpc(NamedTuple):
    """A unary call over gRPC."""

    decode: Callable[..., Any]  # parses the serialized request; raises DecodeError
    handle: Handler  # the SerializeToString of its response may raise StatusError too
    request: Any = None  # the class of the request message; None if its messages are small
    api: str | None = None  # the name of the call in the metrics; None to not count it
    runs_model: bool = False  # such a call waits for its turn
    is_public: bool = False  # callers need no token
    takes_metadata: bool = False  # `decode` takes the call's metadata by key as its second argument


class Call:
    """One call; see the module for the order of the methods.

    `name` is logged if the call fails with an unexpected exception. `api` is its name in the metrics; None to count it
    only if it is rejected before it is handled. A call without an `entry` is not observed. `has_place` says that a
    place has been taken for it already.
    """

    def __init__(
        self,
        entrypoint: Entrypoint,
        name: str,
        admission: Admission,
        entry: Entry | None,
        *,
        api: str | None,
        timeout_s: float | None,
        has_place: bool = False,
    ) -> None:
        self.context = RequestContext(timeout_s=timeout_s, memory=admission.memory, max_rows=admission.limits.rows)
        self.received_bytes: int | None = None  # None if the message was not read
        self.sent_bytes = 0
        self._entrypoint = entrypoint
        self._name = name
        self._admission = admission
        self._entry = entry
        self._api = api
        self._has_place = has_place
        self._is_handled = False
        self._code = Code.OK
        self._handled_s = 0.0

    def identify(self, identity: Identity) -> None:
        """Note the caller, who may make this call."""
        if identity.token:
            self.context.identity = identity
            if self._entry:
                self._entry.token_name = identity.token.name

    def enter(self) -> None:
        """Take a place; raises OverloadError if all are taken."""
        self._admission.enter()
        self._has_place = True

    def handle(self, function: Callable[[_Request, RequestContext], _Response], request: _Request) -> _Response:
        """Return the response of a handler, whose duration is the latency in the metrics."""
        self._is_handled = True
        started = time.perf_counter()
        try:
            return function(request, self.context)
        finally:
            self._handled_s = time.perf_counter() - started

    def fail(self, error: Exception) -> StatusError:
        """Return the error to send to the caller, for the exception that is being handled."""
        if isinstance(error, StatusError):
            status = error
        elif isinstance(error, DecodeError):
            status = StatusError(Code.INTERNAL, "")
        else:
            status = report_exception(logger, self._name, self._entry.request_id if self._entry else "")
        self._code = status.code
        metrics.count_rejection(self._entrypoint.name, status)
        return status

    def leave(self) -> None:
        """Give the place back and count the call. A call that is rejected is counted whatever its API."""
        if self._has_place:
            self._admission.leave(self.context)
        is_counted = self._api is not None if self._is_handled else self._code is not Code.OK
        if is_counted:
            name = self._entrypoint.known_name(self.context.model_name)
            metrics.count_request(name, self._api or "", self._entrypoint.name, self._code, self._handled_s)

    def end(self, status: str) -> None:
        """Write the line of the access log, if the call is observed; `status` is an HTTP status or a gRPC code."""
        if self._entry is None:
            return
        self._entry.note_model(self.context.model_name)
        self._entry.model_version = self.context.model_version
        self._entry.received_bytes = self.received_bytes
        self._entry.end(status, self.sent_bytes)
