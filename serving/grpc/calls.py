"""The calls of the gRPC port: each is authorized, admitted, received, handled and answered."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from savedmodel_bakery.serving import incident
from savedmodel_bakery.serving.access.access import Access
from savedmodel_bakery.serving.access.callers import is_local_peer
from savedmodel_bakery.serving.access.identity import Identity
from savedmodel_bakery.serving.access.required_roles import RPC_ROLES
from savedmodel_bakery.serving.access.tokens import Role
from savedmodel_bakery.serving.admission import costs
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import SMALL_BYTES, OverloadError
from savedmodel_bakery.serving.call.methods import Rpc
from savedmodel_bakery.serving.call.threads import CallThreads
from savedmodel_bakery.serving.grpc.codec import STATUS_CODES, check_message_size, unpack
from savedmodel_bakery.serving.grpc.health import WATCH, HealthService
from savedmodel_bakery.serving.grpc.reflection import PATHS as REFLECTION_PATHS
from savedmodel_bakery.serving.grpc.reflection import Reflection
from savedmodel_bakery.serving.grpc.transfers import Lane
from savedmodel_bakery.serving.telemetry import metrics
from savedmodel_bakery.serving.telemetry.calls import count_rejection
from savedmodel_bakery.serving.telemetry.requests import REQUEST_ID, Entry, Requests
from savedmodel_bakery.wire.parsed_size import parsed_size
from savedmodel_bakery.wire.status import Code, StatusError, truncate_message

logger = logging.getLogger(__name__)

_MAX_TIMEOUT_S = 365 * 24 * 3600.0
_CONTROL_BYTES = 2**20  # of a message that runs no model
_REJECTING_THREADS = 2

_Respond = Callable[[Entry | None, Iterator[bytes], Any], bytes | None]
"""From the observed request, the messages of a call and gRPC's context of it, to the response."""

_Answer = Callable[[Iterator[bytes], Any], Iterator[bytes]]
"""From the messages of a call that streams, and gRPC's context of it, to a response for each; raises StatusError."""


class Calls(grpc.GenericRpcHandler):
    """The calls by path.

    For gRPC, each is a stream of requests. Then it starts before its message has arrived, so a call for which there is
    no place is rejected without receiving its message.

    Args:
        calls: the unary calls.
        access: which callers may make which calls.
        runs: where runs of models run.
        control: where other calls run.
        requests: where each call is observed; None to observe none.
        health: the health service; None to not serve it.
    """

    def __init__(
        self,
        calls: Mapping[str, Rpc],
        access: Access,
        runs: Lane,
        control: Lane,
        requests: Requests | None,
        health: HealthService | None,
    ) -> None:
        if health:
            calls = {**calls, **health.calls()}
        self._access = access
        self._requests = requests
        self._control = control
        self._rejecting = CallThreads(_REJECTING_THREADS, "reject")  # which no call can hold
        self._lanes = {path: runs if rpc.runs_model else control for path, rpc in calls.items()}
        self._handlers = {
            path: self._handler(path, partial(self._respond, path, rpc, lane), lane.threads)
            for path, lane, rpc in ((path, self._lanes[path], rpc) for path, rpc in calls.items())
        }
        reflection = Reflection({path.split("/")[1] for path in calls})
        for path in REFLECTION_PATHS:
            self._lanes[path] = control
            self._handlers[path] = self._stream_handler(path, reflection.answer, control)
        if health:
            self._lanes[WATCH] = control
            self._handlers[WATCH] = self._watch_handler(health)

    def service(self, details: Any) -> Any:
        """Return gRPC's handler for a call that has arrived; every call has one."""
        path = details.method
        lane = self._lanes.get(path)
        if lane is None:
            return self._handler(path, partial(self._reject_unknown, path), self._rejecting)
        try:
            lane.enter()
        except OverloadError as error:
            # Nobody may hold the places of calls such as health: one that has not sent its message gives up its own.
            if lane is not self._control or not lane.transfers.cancel_longest():
                return self._handler(path, partial(_reject, error), self._rejecting)
            lane.admission.enter()
        return self._handlers[path]

    def _handler(self, path: str, respond: _Respond, threads: CallThreads) -> Any:
        """Return gRPC's handler for calls to a path."""
        behaviour: Any = partial(respond, None) if self._requests is None else partial(self._observe, path, respond)
        behaviour.experimental_thread_pool = threads
        return grpc.stream_unary_rpc_method_handler(behaviour)

    def _stream_handler(self, path: str, answer: _Answer, lane: Lane) -> Any:
        """Return gRPC's handler for calls to a path that answer each of their messages."""
        behaviour: Any = partial(self._stream, path, answer, lane)
        behaviour.experimental_thread_pool = lane.threads
        return grpc.stream_stream_rpc_method_handler(behaviour)

    def _watch_handler(self, health: HealthService) -> Any:
        """Return gRPC's handler for calls that watch, which last longer than they hold a thread."""
        behaviour: Any = partial(self._watch, health)
        behaviour.experimental_thread_pool = self._control.threads
        behaviour.experimental_non_blocking = True
        return grpc.stream_stream_rpc_method_handler(behaviour)

    def _begin(self, path: str, call: Any) -> Entry | None:
        """Return the entry of a call; None if calls are not observed."""
        if self._requests is None:
            return None
        metadata = {key: value for key, value in call.invocation_metadata() if isinstance(value, str)}
        entry = self._requests.begin_rpc(path, call.peer(), metadata)
        if entry.request_id:
            call.set_trailing_metadata(((REQUEST_ID, entry.request_id),))
        return entry

    def _observe(self, path: str, respond: _Respond, messages: Iterator[bytes], call: Any) -> bytes | None:
        """Respond to a call and observe it."""
        entry = self._begin(path, call)
        assert entry
        response = None
        try:
            response = respond(entry, messages, call)
        finally:
            entry.end(_status(call, response is not None), len(response or b""))
        return response

    def _respond(
        self, path: str, rpc: Rpc, lane: Lane, entry: Entry | None, messages: Iterator[bytes], call: Any
    ) -> bytes:
        context = None
        try:
            with _aborting(path, entry, call):
                with _count_rejected():
                    identity = None if rpc.is_public else self._authorize(call, RPC_ROLES[path], entry)
                    context = lane.admission.context(timeout_s=_timeout_s(call), identity=identity, entry=entry)
                    lane.transfers.watch(call, context)
                    if rpc.runs_model:
                        lane.admission.expect(context, context.remaining_s())
                return _answer(rpc, lane, entry, messages, call, context)
        finally:
            lane.admission.leave(context)
            if context:
                lane.transfers.send(call, context)
        raise AssertionError  # the call has been aborted, which raises

    def _stream(self, path: str, answer: _Answer, lane: Lane, messages: Iterator[bytes], call: Any) -> Iterator[bytes]:
        """Answer the messages of a call, and observe it."""
        entry = self._begin(path, call)
        sent_bytes, is_answered = 0, False
        try:
            with lane.transfers.limited(call), _aborting(path, entry, call), _count_rejected():
                self._authorize(call, None, entry)
                for response in answer(messages, call):
                    sent_bytes += len(response)
                    yield response
            is_answered = True
        finally:
            lane.admission.leave(None)
            if entry:
                entry.end(_status(call, is_answered), sent_bytes)

    def _watch(self, health: HealthService, messages: Iterator[bytes], call: Any, send: Any) -> None:
        """Begin to watch. Not observed, as the call may last for days."""
        try:
            with self._control.transfers.limited(call):
                health.watch(messages, call, send)
        finally:
            self._control.admission.leave()

    def _reject_unknown(self, path: str, entry: Entry | None, _messages: Iterator[bytes], call: Any) -> None:
        with _aborting(path, entry, call), _count_rejected():
            self._authorize(call, None, entry)
        call.abort(grpc.StatusCode.UNIMPLEMENTED, "")

    def _authorize(self, call: Any, role: Role | None, entry: Entry | None) -> Identity:
        needs_token = self._access.needs_token
        credentials = dict(call.invocation_metadata()).get("authorization") if needs_token else None
        is_local = role is Role.ADMIN and is_local_peer(call.peer())  # matters to admins only
        identity = self._access.authorize(credentials, is_local=is_local, role=role)
        if entry and identity.token:
            entry.token_name = identity.token.name
        return identity


def _answer(
    rpc: Rpc, lane: Lane, entry: Entry | None, messages: Iterator[bytes], call: Any, context: RequestContext
) -> bytes:
    """Receive the message of a call and return the response."""
    with ExitStack() as turn:
        with _count_rejected():
            message = lane.transfers.receive(messages, call)
            if message is None:
                raise StatusError(Code.INTERNAL, "")
            if entry:
                entry.received_bytes = len(message)
            max_unpacked = lane.admission.limits.unpacked_bytes
            if not rpc.runs_model:
                max_unpacked = SMALL_BYTES if rpc.is_public else _CONTROL_BYTES
                check_message_size(message, max_unpacked)
            context.charge(costs.MESSAGE * len(message))
            if rpc.runs_model:
                turn.enter_context(lane.admission.turn(context))
            unpacked = unpack(message, max_unpacked, context.charge)
            del message
            if rpc.request:
                context.charge(parsed_size(rpc.request, unpacked))
            metadata = [dict(call.invocation_metadata())] if rpc.takes_metadata else []
            request = rpc.decode(unpacked, *metadata)
            del unpacked
        response: bytes = rpc.handle(request, context).SerializeToString()
        return response


@contextmanager
def _count_rejected() -> Iterator[None]:
    """Count a call that is rejected before its handler counts it, so without the name of its model."""
    try:
        yield
    except (StatusError, DecodeError) as error:
        metrics.count_request("", "", "GRPC", getattr(error, "code", Code.INTERNAL), 0.0)
        raise


@contextmanager
def _aborting(path: str, entry: Entry | None, call: Any) -> Iterator[None]:
    """Abort a call with the status of the error that ends the `with` block."""
    try:
        yield
    except StatusError as error:
        _abort(call, error)
    except DecodeError:
        call.abort(grpc.StatusCode.INTERNAL, "")
    except grpc.RpcError:  # the caller has gone before its message has arrived
        raise
    except Exception:
        _abort(call, incident.report(logger, path, entry.request_id if entry else ""))


def _status(call: Any, is_answered: bool) -> str:
    """Return the name of the status with which a call ends."""
    code = grpc.StatusCode.OK if is_answered else call.code() or grpc.StatusCode.CANCELLED
    return str(code.name)


def _reject(error: OverloadError, _entry: Entry | None, _messages: Iterator[bytes], call: Any) -> None:
    metrics.count_request("", "", "GRPC", error.code, 0.0)
    _abort(call, error)


def _abort(call: Any, error: StatusError) -> None:
    count_rejection("GRPC", error)
    if error.retry_after_s is not None:
        retry_after = ("retry-after", str(math.ceil(error.retry_after_s)))
        call.set_trailing_metadata((*(call.trailing_metadata() or ()), retry_after))
    # As bytes, because the text of a graph's error may contain some that are not UTF-8.
    call.abort(STATUS_CODES[error.code], truncate_message(error.message).encode("utf-8", "surrogateescape"))


def _timeout_s(call: Any) -> float | None:
    """Return the seconds until the caller's deadline; None without one, for which grpcio reports a few centuries."""
    remaining = call.time_remaining()
    return remaining if remaining is not None and remaining < _MAX_TIMEOUT_S else None
