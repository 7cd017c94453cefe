"""Receives the body of a request, which is charged for it while it arrives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from savedmodel_bakery.serving.admission import costs
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import RETRY_AFTER_S, SMALL_BYTES, OverloadError, too_large
from savedmodel_bakery.serving.call.call import Lane
from savedmodel_bakery.serving.http.messages import Request
from savedmodel_bakery.serving.rest.protocol import Protocol

UNCHARGED_BYTES = 2**16
"""Part of a body that may have arrived without being charged."""

_PIECE_BYTES = 2**24  # copying one holds up all other requests


class Body:
    """The body of one request.

    Args:
        context: of the request.
        lane: where it runs.
        runs_model: whether it runs a model; others may have a small body only, and don't wait for memory.
        receive: returns its next ASGI message.
        connection: that it arrives on.
    """

    def __init__(
        self,
        context: RequestContext,
        lane: Lane,
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        connection: Protocol,
        *,
        runs_model: bool,
    ) -> None:
        self._context = context
        self._lane = lane
        self._receive = receive
        self._connection = connection
        self._runs_model = runs_model
        message_bytes = lane.admission.limits.message_bytes
        self._max_bytes = message_bytes if runs_model else min(message_bytes, SMALL_BYTES)
        self._size = self._arrived = self._charged = 0

    async def read(self, request: Request) -> bytes | None:
        """Return the whole body; None if the client has disconnected.

        Raises:
            StatusError: it is too large, takes too long, or there is not enough memory for it.
        """
        length = int(request.headers.get("content-length", 0))
        self._check_size(length)
        self._lane.admission.memory.check_possible(costs.BODY * length)
        pieces: list[bytes] = []
        self._connection.receive_body(self._take)
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return None
            if self._connection.body_error:
                raise self._connection.body_error
            pieces.append(message.get("body", b""))
            self._size += len(pieces[-1])
            self._check_size(self._size)
            due, self._charged = self._size - self._charged, self._size  # more may arrive while this waits
            await self._charge(costs.BODY * due)
            if not message.get("more_body", False):
                if len(pieces) == 1:
                    return pieces[0]
                # On a thread, because joining a large body takes long.
                return await self._lane.run(b"".join, pieces)

    def _take(self, count: int) -> bool:
        """Take a part that has arrived; return whether to go on receiving, see `Protocol.receive_body`."""
        self._arrived += count
        if self._arrived > self._max_bytes or self._arrived - self._size > _PIECE_BYTES:
            return False
        if self._arrived - self._charged > UNCHARGED_BYTES:
            if not self._context.try_charge(costs.BODY * (self._arrived - self._charged)):
                return False
            self._charged = self._arrived
        return True

    def _check_size(self, size: int) -> None:
        message_bytes = self._lane.admission.limits.message_bytes
        if size > message_bytes:
            raise too_large(size, message_bytes, "bytes", limit="max_message_bytes")
        if size > self._max_bytes:
            condition = "for one that runs no model"
            raise too_large(size, SMALL_BYTES, "bytes", limit="max_message_bytes", condition=condition)

    async def _charge(self, size: int) -> None:
        """Charge the request; a run of a model waits on a thread if there is not enough memory now."""
        if self._context.try_charge(size):
            return
        if not self._runs_model:  # there are few threads
            raise OverloadError(
                "there is not enough memory for the body now (--memory_budget_bytes)",
                RETRY_AFTER_S,
                limit="memory_budget_bytes",
            )
        await self._lane.run(self._context.charge, size)
