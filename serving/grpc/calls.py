"""The calls of the gRPC port: each is authorized, admitted, received, handled and answered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import grpc

from savedmodel_bakery.serving.access.access import RPC_ROLES, Access, Identity, is_local_peer
from savedmodel_bakery.serving.access.tokens import Role
from savedmodel_bakery.serving.admission.budget import Cost
from savedmodel_bakery.serving.admission.limits import SMALL_BYTES, OverloadError
from savedmodel_bakery.serving.call.call import Call, Entrypoint, Rpc
from savedmodel_bakery.serving.call.threads import CallThreads
from savedmodel_bakery.serving.grpc.codec import STATUS_CODES, check_message_size, unpack
from savedmodel_bakery.serving.grpc.standard_services import REFLECTION_PATHS, WATCH, HealthService, Reflection
from savedmodel_bakery.serving.grpc.transfers import Lane
from savedmodel_bakery.serving.telemetry.requests import REQUEST_ID, Entry
from savedmodel_bakery.wire.encoding import parsed_size
from savedmodel_bakery.wire.status import Code, StatusError, truncate_message

_MAX_TIMEOUT_S = 365 * 24 * 3600.0
_CONTROL_BYTES = 2**20  # of a message that runs no model
_REJECTING_THREADS = 2


class Calls(grpc.GenericRpcHandler):
    """The calls by path.

    For gRPC, each is a stream of requests. Then it starts before its message has arrived, so a call for which there is
    no place is rejected without receiving its message.
    """

    def __init__(
        self,
        calls: Mapping[str, Rpc],
        entrypoint: Entrypoint,
        access: Access,
        runs: Lane,
        control: Lane,
        health: HealthService | None,
    ) -> None:
        if health:
            calls = {**calls, **health.calls()}
        self._entrypoint = entrypoint
        self._access = access
        self._control = control
        self._rejecting = CallThreads(_REJECTING_THREADS, "reject")  # which no call can hold
        self._handlers: dict[str, tuple[Lane, Any]] = {}
        for path, rpc in calls.items():
            lane = runs if rpc.runs_model else control
            self._handlers[path] = lane, _unary(partial(self._respond, path, rpc, lane), lane.threads)
        reflection = Reflection({path.split("/")[1] for path in calls})
        for path in REFLECTION_PATHS:
            self._handlers[path] = control, _stream(partial(self._stream, path, reflection.answer), control.threads)
        if health:
            watch = _stream(partial(self._watch, health), control.threads, is_blocking=False)
            self._handlers[WATCH] = control, watch

    def service(self, details: Any) -> Any:
        """Return gRPC's handler for a call that has arrived; every call has one."""
        path = details.method
        if path not in self._handlers:
            return _unary(partial(self._reject_unknown, path), self._rejecting)
        lane, handler = self._handlers[path]
        try:
            lane.enter()
        except OverloadError as error:
            # Nobody may hold the places of calls such as health: one that has not sent its message gives up its own.
            if lane is not self._control or not lane.transfers.cancel_longest():
                return _unary(partial(self._reject, path, error), self._rejecting)
            lane.admission.enter(is_forced=True)
        return handler

    def _call(
        self, path: str, lane: Lane, grpc_call: Any, *, api: str | None = None, has_place: bool = True
    ) -> _Ending:
        """Begin a call, and end it with the `with` block."""
        entry = self._observe(path, grpc_call)
        call = Call(
            self._entrypoint,
            path,
            lane.admission,
            entry,
            api=api,
            timeout_s=_timeout_s(grpc_call),
            has_place=has_place,
        )
        return _Ending(call, grpc_call, is_observed=entry is not None)

    def _observe(self, path: str, grpc_call: Any) -> Entry | None:
        """Return the entry of a call; None if calls are not observed."""
        if self._entrypoint.requests is None:
            return None
        metadata = {key: value for key, value in grpc_call.invocation_metadata() if isinstance(value, str)}
        entry = self._entrypoint.requests.begin_rpc(path, grpc_call.peer(), metadata)
        if entry.request_id:
            grpc_call.set_trailing_metadata(((REQUEST_ID, entry.request_id),))
        return entry

    def _respond(self, path: str, rpc: Rpc, lane: Lane, messages: Iterator[bytes], grpc_call: Any) -> bytes:
        """Receive the message of a unary call and return the response."""
        response: bytes = b""
        with self._call(path, lane, grpc_call, api=rpc.api) as call:
            context = call.context
            lane.transfers.watch(grpc_call, context)
            try:
                if not rpc.is_public:
                    call.identify(self._authorize(grpc_call, RPC_ROLES[path]))
                if rpc.runs_model:
                    lane.admission.expect(context, context.remaining_s())
                message = lane.transfers.receive(messages, grpc_call)
                if message is None:
                    raise StatusError(Code.INTERNAL, "")
                call.received_bytes = len(message)
                max_unpacked = lane.admission.limits.unpacked_bytes
                if not rpc.runs_model:
                    max_unpacked = SMALL_BYTES if rpc.is_public else _CONTROL_BYTES
                    check_message_size(message, max_unpacked)
                context.charge(Cost.MESSAGE * len(message))
                with lane.admission.turn(context) if rpc.runs_model else nullcontext():
                    unpacked = unpack(message, max_unpacked, context.charge)
                    del message
                    if rpc.request:
                        context.charge(parsed_size(rpc.request, unpacked))
                    metadata = [dict(grpc_call.invocation_metadata())] if rpc.takes_metadata else []
                    request = rpc.decode(unpacked, *metadata)
                    del unpacked
                    response = call.handle(rpc.handle, request).SerializeToString()
                context.settle(Cost.RESPONSE * len(response))
            finally:
                lane.transfers.send(grpc_call, context)
            call.sent_bytes = len(response)
        return response

    def _stream(
        self,
        path: str,
        answer: Callable[[Iterator[bytes], Any], Iterator[bytes]],
        messages: Iterator[bytes],
        grpc_call: Any,
    ) -> Iterator[bytes]:
        """Answer the messages of a call that streams."""
        with (
            self._call(path, self._control, grpc_call) as call,
            self._control.transfers.limited(grpc_call),
        ):
            call.identify(self._authorize(grpc_call, None))
            for response in answer(messages, grpc_call):
                call.sent_bytes += len(response)
                yield response

    def _watch(self, health: HealthService, messages: Iterator[bytes], grpc_call: Any, send: Any) -> None:
        """Begin to watch. Not observed, as the call may last for days."""
        try:
            with self._control.transfers.limited(grpc_call):
                health.watch(messages, grpc_call, send)
        finally:
            self._control.admission.leave()

    def _reject(self, path: str, error: OverloadError, _messages: Iterator[bytes], grpc_call: Any) -> None:
        """Reject a call for which there is no place."""
        with self._call(path, self._control, grpc_call, has_place=False):
            raise error

    def _reject_unknown(self, path: str, _messages: Iterator[bytes], grpc_call: Any) -> None:
        with self._call(path, self._control, grpc_call, has_place=False) as call:
            call.identify(self._authorize(grpc_call, None))
            raise StatusError(Code.UNIMPLEMENTED, "")

    def _authorize(self, grpc_call: Any, role: Role | None) -> Identity:
        needs_token = self._access.needs_token
        credentials = dict(grpc_call.invocation_metadata()).get("authorization") if needs_token else None
        is_local = role is Role.ADMIN and is_local_peer(grpc_call.peer())  # matters to admins only
        return self._access.authorize(credentials, is_local=is_local, role=role)


class _Ending:
    """Ends a call with a `with` block; an error that ends the block becomes its status."""

    def __init__(self, call: Call, grpc_call: Any, *, is_observed: bool) -> None:
        self._call = call
        self._grpc_call = grpc_call
        self._is_observed = is_observed

    def __enter__(self) -> Call:
        return self._call

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            # An RpcError says that the caller has gone before its message has arrived.
            if isinstance(error, Exception) and not isinstance(error, grpc.RpcError):
                _abort(self._grpc_call, self._call.fail(error))
        finally:
            self._call.leave()
            if self._is_observed:
                code = self._grpc_call.code() or grpc.StatusCode.CANCELLED
                self._call.end("OK" if error is None else code.name)


def _unary(behaviour: Any, threads: CallThreads) -> Any:
    """Return gRPC's handler for calls with one response; each of them runs on a thread."""
    behaviour.experimental_thread_pool = threads
    return grpc.stream_unary_rpc_method_handler(behaviour)


def _stream(behaviour: Any, threads: CallThreads, *, is_blocking: bool = True) -> Any:
    """Return gRPC's handler for calls with any number of responses.

    One that is not blocking lasts longer than it holds a thread; it is given a function that sends.
    """
    behaviour.experimental_thread_pool = threads
    behaviour.experimental_non_blocking = not is_blocking
    return grpc.stream_stream_rpc_method_handler(behaviour)


def _abort(grpc_call: Any, error: StatusError) -> None:
    if error.retry_after_s is not None:
        retry_after = ("retry-after", str(math.ceil(error.retry_after_s)))
        grpc_call.set_trailing_metadata((*(grpc_call.trailing_metadata() or ()), retry_after))
    # As bytes, because the text of a graph's error may contain some that are not UTF-8.
    grpc_call.abort(STATUS_CODES[error.code], truncate_message(error.message).encode("utf-8", "surrogateescape"))


def _timeout_s(grpc_call: Any) -> float | None:
    """Return the seconds until the caller's deadline; None without one, for which grpcio reports a few centuries."""
    remaining = grpc_call.time_remaining()
    return remaining if remaining is not None and remaining < _MAX_TIMEOUT_S else None
