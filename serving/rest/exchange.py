"""One HTTP request, whose body may still arrive, and its response. Receives the body, which is charged meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.budget import Cost
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import RETRY_AFTER_S, SMALL_BYTES, OverloadError, too_large
from savedmodel_bakery.serving.call.http import Response
from savedmodel_bakery.serving.call.threads import CallThreads
from savedmodel_bakery.serving.rest.parser import Head

_UNCHARGED_BYTES = 2**16  # of a body that has arrived
_UNREAD_BYTES = 2**18  # of a body that nobody reads yet: what asyncio receives at a time
_PIECE_BYTES = 2**24  # of a body; copying one holds up all other requests
# A body may come in this many parts, however small; on average, all of a longer one must have this size. Each takes a
# Python call, and a connection may deliver a million of them before others have their turn.
_FREE_PARTS, _MIN_PART_BYTES = 20_000, 8
# A body stands still if less than this has arrived for so long.
_MOVED_BYTES, _STILL_S = 2**16, 5.0

_Result = TypeVar("_Result")


class Lane:
    """Where a kind of calls runs: runs of models never delay other calls, such as the status of a model."""

    def __init__(self, admission: Admission, threads: CallThreads) -> None:
        self.admission = admission
        self.threads = threads

    async def run(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """Call a function on a thread; raises OverloadError if there is none."""
        self.threads.check()
        return await asyncio.get_running_loop().run_in_executor(self.threads, partial(function, *arguments))


class _Connection(Protocol):
    """What an exchange uses of its connection."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def write_continue(self) -> None: ...
    async def send(self, exchange: Exchange, response: Response) -> None: ...


class Exchange:
    """One request and its response."""

    def __init__(self, connection: _Connection, head: Head, peer: str, now: float) -> None:
        self.request, self.version, self.keep_alive = head
        self.peer = peer
        self.is_complete = False  # whether the request has been received as a whole
        self.on_disconnect: Callable[[], None] | None = None
        self._connection = connection
        self._is_disconnected = False
        self._error: OverloadError | None = None
        self._woken = asyncio.Event()  # for the reader of the body
        self._context: RequestContext | None = None  # while the body is read
        self._max_bytes = _UNREAD_BYTES
        self._unread = bytearray()
        self._arrived = self._charged = self._parts = 0
        self._counted, self._moved_at = 0, now

    # Called by the connection

    def receive(self, part: bytes, now: float) -> None:
        """Receive a part of the body; raises ValueError if too many parts are too small."""
        self._unread += part
        self._arrived += len(part)
        self._parts += 1
        if self._parts > _FREE_PARTS and self._arrived < _MIN_PART_BYTES * self._parts:
            raise ValueError("too many small parts of a body")
        if self._arrived - self._counted >= _MOVED_BYTES:
            self._counted, self._moved_at = self._arrived, now
        if not self._has_room():
            self._connection.pause_reading()
            if self._context:
                self._woken.set()

    def complete(self) -> None:
        """End the body."""
        self.is_complete = True
        self._woken.set()

    def disconnect(self) -> None:
        """End the request, because the client has gone."""
        self._is_disconnected = True
        self._woken.set()
        if self.on_disconnect:
            self.on_disconnect()

    def fail(self, error: OverloadError) -> None:
        """Reject the request instead of waiting for the rest of its body."""
        self._error = error
        self._connection.pause_reading()
        self._woken.set()

    def still_bytes(self, now: float) -> int:
        """Return how much of a body that is read has arrived, if it stands still; else 0."""
        is_still = self._context and not self._error and now - self._moved_at > _STILL_S
        return self._arrived if is_still else 0

    def _has_room(self) -> bool:
        """Return whether more may arrive before the reader takes what has arrived. Charges the request for it."""
        has_room = self._arrived <= self._max_bytes and len(self._unread) <= _PIECE_BYTES
        uncharged = self._arrived - self._charged
        if has_room and self._context and uncharged > _UNCHARGED_BYTES:
            try:
                has_room = self._context.try_charge(Cost.BODY * uncharged)
            except OverloadError as error:  # more than there is for all requests
                self._error, has_room = error, False
            if has_room:
                self._charged = self._arrived
        return has_room

    # Called by the server

    async def read_body(self, context: RequestContext, lane: Lane, *, runs_model: bool) -> bytes | None:
        """Return the whole body, for which the request is charged meanwhile; None if the client has disconnected.

        A request that runs no model may have a small body only, and does not wait for memory.

        Raises:
            StatusError: it is too large, takes too long, or there is not enough memory for it.
        """
        length = int(self.request.headers.get("content-length", 0))
        message_bytes = lane.admission.limits.message_bytes
        self._max_bytes = message_bytes if runs_model else min(message_bytes, SMALL_BYTES)
        if length > self._max_bytes:
            raise _too_large(length, message_bytes)
        lane.admission.memory.check_possible(Cost.BODY * length)
        self._context = context
        if not self._has_room():
            self._woken.set()
        if self.request.headers.get("expect", "").lower() == "100-continue" and not self._arrived:
            self._connection.write_continue()
        pieces: list[bytes] = []
        size = 0
        is_complete = False
        while not is_complete:
            if not self.is_complete:
                self._connection.resume_reading()
            await self._woken.wait()
            self._woken.clear()
            if self._is_disconnected:
                return None
            if self._error:
                raise self._error
            is_complete = self.is_complete  # more may arrive while this waits for memory
            pieces.append(bytes(self._unread))
            self._unread = bytearray()
            size += len(pieces[-1])
            if size > self._max_bytes:
                raise _too_large(size, message_bytes)
            due, self._charged = size - self._charged, size
            if not context.try_charge(Cost.BODY * due):
                if not runs_model:  # there are few threads
                    raise OverloadError(
                        "there is not enough memory for the body now (--memory_budget_bytes)",
                        RETRY_AFTER_S,
                        limit="memory_budget_bytes",
                    )
                await lane.run(context.charge, Cost.BODY * due)
        # On a thread, because joining a large body takes long.
        return pieces[0] if len(pieces) == 1 else await lane.run(b"".join, pieces)

    async def send(self, response: Response) -> None:
        """Send the response; return when the client has read most of it, or took too long."""
        await self._connection.send(self, response)
        self.on_disconnect = None


def _too_large(size: int, message_bytes: int) -> OverloadError:
    """Return the error of a body beyond the limit of all messages, or else of those that run no model."""
    if size > message_bytes:
        return too_large(size, message_bytes, "bytes", limit="max_message_bytes")
    condition = "for one that runs no model"
    return too_large(size, SMALL_BYTES, "bytes", limit="max_message_bytes", condition=condition)
