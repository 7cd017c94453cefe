"""Deliveries in the worker's hand, and which of them are taken next. Must not know a model."""

from __future__ import annotations

import asyncio
import random
from collections import deque

from aio_pika.abc import AbstractIncomingMessage

from savedmodel_bakery.wire import amqp


def delivery_count(message: AbstractIncomingMessage) -> int:
    """How often the message came back to the queue, because a worker that had it ended or lost its connection."""
    count = message.headers.get(amqp.DELIVERY_COUNT, 0)
    return count if isinstance(count, int) else 0


class Inbox:
    """Takes first what came first, and as many at a time as are wanted.

    What comes back may have ended its worker, or lain beside what did. So it is taken last, by lot, and alone: only
    when all that was taken before is settled, and nothing else is taken until it is settled itself. Should it end this
    worker too, others that wait here come back once more with it, but none that was taken before.

    Attributes:
        idle: set while nothing is in hand.
    """

    def __init__(self) -> None:
        self._fresh: deque[AbstractIncomingMessage] = deque()
        self._returned: list[AbstractIncomingMessage] = []
        self._unsettled = 0
        self._is_alone = False
        self._changed = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()

    def __len__(self) -> int:
        """Messages in hand: those that wait, and those that were taken and are not settled."""
        return len(self._fresh) + len(self._returned) + self._unsettled

    def put(self, message: AbstractIncomingMessage) -> None:
        """Add a message."""
        (self._returned if delivery_count(message) else self._fresh).append(message)
        self._note_change()

    async def take(self, most: int) -> list[AbstractIncomingMessage]:
        """Wait until a message may be taken, and take it with what waits already, `most` messages in all."""
        while not (taken := self._next(most)):
            self._changed.clear()
            await self._changed.wait()
        self._unsettled += len(taken)
        return taken

    def settle(self) -> None:
        """One of the messages that were taken is dealt with."""
        self._unsettled -= 1
        self._is_alone = self._is_alone and self._unsettled > 0
        self._note_change()

    def _next(self, most: int) -> list[AbstractIncomingMessage]:
        if self._is_alone:
            return []
        if self._fresh:
            return [self._fresh.popleft() for _ in range(min(most, len(self._fresh)))]
        if self._unsettled or not self._returned:
            return []
        self._is_alone = True
        return [self._returned.pop(random.randrange(len(self._returned)))]

    def _note_change(self) -> None:
        self._changed.set()
        if len(self):
            self.idle.clear()
        else:
            self.idle.set()
