"""Repeats calls to a model server, the same for all its transports. All calls of `client.calls` are idempotent.

A call that cannot reach the server, or gets UNAVAILABLE, is repeated up to three times after growing pauses. If the
server states a time after which to try again, that is the pause, and the number of attempts is not limited. No attempt
starts after the time limit of the call.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, Retrying, stop_before_delay, wait_exponential, wait_random

from savedmodel_bakery.client.errors import ConnectionFailedError, RequestRefusedError, TlsHandshakeError
from savedmodel_bakery.wire.status import Code

Result = TypeVar("Result")

OVERLOADED = (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE)
"""The codes with which a server may state a time after which to try again."""

MAX_ATTEMPTS = 4
_MIN_PAUSE_S = 0.1
_MIN_TIMEOUT_S = 0.001

_backoff = wait_exponential(multiplier=_MIN_PAUSE_S, max=1.0) + wait_random(0, _MIN_PAUSE_S / 2)


def send_with_retries(send: Callable[[float], Result], *, timeout_s: float) -> Result:
    """Return the result of a call.

    Args:
        send: makes one attempt; its argument is the time limit of the attempt in seconds.
        timeout_s: time limit of the call.

    Raises:
        ClientError: the error of the last attempt.
    """
    end_s = time.monotonic() + timeout_s
    return Retrying(**_policy(timeout_s))(lambda: send(_remaining_s(end_s)))


async def send_with_retries_async(send: Callable[[float], Awaitable[Result]], *, timeout_s: float) -> Result:
    """Do the same as `send_with_retries` without blocking the event loop."""
    end_s = time.monotonic() + timeout_s

    async def attempt() -> Result:
        return await send(_remaining_s(end_s))

    return await AsyncRetrying(**_policy(timeout_s))(attempt)


def pause_after(metadata: Iterable[tuple[str, str | bytes]], code: Code) -> float | None:
    """Return the time in seconds after which a gRPC server allows another attempt, from its trailing metadata.

    `grpc-retry-pushback-ms` is gRPC's own (github.com/grpc/proposal/blob/master/A6-client-retries.md, "Pushback"): a
    value that is negative or not a number forbids another attempt. `retry-after` is in seconds, as HTTP's.

    Returns:
        The time; `math.inf` if the server forbids another attempt, or None if it does not say or is not overloaded.
    """
    values = {key: value if isinstance(value, str) else "" for key, value in metadata}
    if code not in OVERLOADED:
        return None
    if (pushback := values.get("grpc-retry-pushback-ms")) is not None:
        return float(pushback) / 1000 if re.fullmatch(r"\d+", pushback, re.ASCII) else math.inf
    retry_after = values.get("retry-after", "")
    return float(retry_after) if re.fullmatch(r"\d+(\.\d+)?", retry_after, re.ASCII) else None


def stated_pause_s(state: RetryCallState) -> float | None:
    """Return the time in seconds after which the server allows another attempt; None if it did not say."""
    exc = _error(state)
    return exc.retry_after_s if isinstance(exc, RequestRefusedError) else None


def _policy(timeout_s: float) -> dict[str, Any]:
    out_of_time = stop_before_delay(timeout_s)
    return {
        "retry": lambda state: _is_retryable(_error(state)),
        "wait": _pause_s,
        "stop": lambda state: _is_last_attempt(state) or out_of_time(state),
        "reraise": True,
    }


def _error(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None


def _is_retryable(exc: BaseException | None) -> bool:
    if isinstance(exc, RequestRefusedError):
        return exc.code is Code.UNAVAILABLE or exc.retry_after_s is not None
    return isinstance(exc, ConnectionFailedError) and not isinstance(exc, TlsHandshakeError)


def _pause_s(state: RetryCallState) -> float:
    stated_s = stated_pause_s(state)
    return _backoff(state) if stated_s is None else max(stated_s, _MIN_PAUSE_S)


def _is_last_attempt(state: RetryCallState) -> bool:
    return stated_pause_s(state) is None and state.attempt_number >= MAX_ATTEMPTS


def _remaining_s(end_s: float) -> float:
    return max(end_s - time.monotonic(), _MIN_TIMEOUT_S)
