"""Repeats calls to a model server, the same for all its transports. All calls of `client.calls` are idempotent.

A call that cannot reach the server, or gets UNAVAILABLE or CANCELLED, is repeated up to three times after growing
pauses: a server that shuts down sends CANCELLED for calls that it has not finished. If the server states a time after
which to try again, that is the pause, and the number of attempts is not limited. No attempt starts after the time limit
of the call.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from savedmodel_bakery.errors import ClientError, ConnectionFailedError, RequestRefusedError, TlsHandshakeError
from savedmodel_bakery.wire.status import Code

Result = TypeVar("Result")

OVERLOADED = (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE)
"""The codes with which a server may state a time after which to try again."""

SHUTTING_DOWN = (Code.UNAVAILABLE, Code.CANCELLED)
"""The codes of a server that restarts; it sends CANCELLED for unfinished calls when it shuts down."""

MAX_ATTEMPTS = 4
_MIN_PAUSE_S = 0.1
_MIN_TIMEOUT_S = 0.001


def send_with_retries(send: Callable[[float], Result], *, end_s: float) -> Result:
    """Return the result of `send`, which makes one attempt within a number of seconds, until `end_s` (monotonic)."""
    attempts = 0
    while True:
        attempts += 1
        try:
            return send(max(end_s - time.monotonic(), _MIN_TIMEOUT_S))
        except ClientError as exc:
            pause_s = _pause_s(exc, attempts)
            if time.monotonic() + pause_s >= end_s:
                raise
        time.sleep(pause_s)


async def send_with_retries_async(send: Callable[[float], Awaitable[Result]], *, end_s: float) -> Result:
    """Do the same as `send_with_retries` without blocking the event loop."""
    import asyncio  # slow to import

    attempts = 0
    while True:
        attempts += 1
        try:
            return await send(max(end_s - time.monotonic(), _MIN_TIMEOUT_S))
        except ClientError as exc:
            pause_s = _pause_s(exc, attempts)
            if time.monotonic() + pause_s >= end_s:
                raise
        await asyncio.sleep(pause_s)


def pause_after(metadata: Iterable[tuple[str, str | bytes]], code: Code) -> float | None:
    """Return the seconds after which a gRPC server allows another attempt, from its trailing metadata, if stated.

    `grpc-retry-pushback-ms` is gRPC's own (github.com/grpc/proposal/blob/master/A6-client-retries.md, "Pushback"): a
    value that is negative or not a number forbids another attempt, `math.inf`. `retry-after` is in seconds, as HTTP's.
    """
    values = {key: value if isinstance(value, str) else "" for key, value in metadata}
    if code not in OVERLOADED:
        return None
    if (pushback := values.get("grpc-retry-pushback-ms")) is not None:
        return float(pushback) / 1000 if re.fullmatch(r"\d+", pushback, re.ASCII) else math.inf
    retry_after = values.get("retry-after", "")
    return float(retry_after) if re.fullmatch(r"\d+(\.\d+)?", retry_after, re.ASCII) else None


def _pause_s(error: ClientError, attempts: int) -> float:
    """Return the time in seconds until another attempt; infinite if there must be none."""
    if isinstance(error, RequestRefusedError):
        if error.retry_after_s is not None:
            return max(error.retry_after_s, _MIN_PAUSE_S)
        is_temporary = error.code in SHUTTING_DOWN
    else:
        is_temporary = isinstance(error, ConnectionFailedError) and not isinstance(error, TlsHandshakeError)
    if not is_temporary or attempts >= MAX_ATTEMPTS:
        return math.inf
    return _MIN_PAUSE_S * 2.0 ** (attempts - 1) + random.uniform(0, _MIN_PAUSE_S / 2)
