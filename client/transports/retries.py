"""Repeats calls to a model server, the same for all its transports. All calls of `client.calls` are idempotent.

A call that cannot reach the server, or gets UNAVAILABLE or CANCELLED, is repeated up to three times after growing
pauses: a server that shuts down sends CANCELLED for calls that it has not finished. If the server states a time after
which to try again, that is the pause, and the number of attempts is not limited. No attempt starts after the time limit
of the call.

The first attempt does without tenacity, which costs a tenth of the time of a small call and is slow to import.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from savedmodel_bakery.errors import ClientError, ConnectionFailedError, RequestRefusedError, TlsHandshakeError
from savedmodel_bakery.wire.status import Code

if TYPE_CHECKING:
    from tenacity import RetryCallState

Result = TypeVar("Result")

OVERLOADED = (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE)
"""The codes with which a server may state a time after which to try again."""

SHUTTING_DOWN = (Code.UNAVAILABLE, Code.CANCELLED)
"""The codes of a server that restarts; it sends CANCELLED for unfinished calls when it shuts down."""

MAX_ATTEMPTS = 4
_MIN_PAUSE_S = 0.1
_MAX_BACKOFF_S = 1.0
_MIN_TIMEOUT_S = 0.001


def send_with_retries(send: Callable[[float], Result], *, timeout_s: float) -> Result:
    """Return the result of a call.

    Args:
        send: makes one attempt; its argument is the time limit of the attempt in seconds.
        timeout_s: time limit of the call.

    Raises:
        ClientError: the error of the last attempt.
    """
    end_s = time.monotonic() + timeout_s
    try:
        return send(timeout_s)
    except ClientError as exc:
        if not _is_retryable(exc):
            raise
        attempts = _Attempts(exc, end_s)
    from tenacity import Retrying

    def attempt() -> Result:
        attempts.raise_first_error()
        return send(attempts.remaining_s)

    return Retrying(**attempts.policy())(attempt)


async def send_with_retries_async(send: Callable[[float], Awaitable[Result]], *, timeout_s: float) -> Result:
    """Do the same as `send_with_retries` without blocking the event loop."""
    end_s = time.monotonic() + timeout_s
    try:
        return await send(timeout_s)
    except ClientError as exc:
        if not _is_retryable(exc):
            raise
        attempts = _Attempts(exc, end_s)
    from tenacity import AsyncRetrying

    async def attempt() -> Result:
        attempts.raise_first_error()
        return await send(attempts.remaining_s)

    return await AsyncRetrying(**attempts.policy())(attempt)


def remaining_s(end_s: float) -> float:
    """Return the time in seconds until a time of the monotonic clock, above 0."""
    return max(end_s - time.monotonic(), _MIN_TIMEOUT_S)


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


class _Attempts:
    """The attempts of a call whose first one has failed."""

    def __init__(self, first_error: ClientError, end_s: float) -> None:
        self._first_error: ClientError | None = first_error
        self._end_s = end_s

    @property
    def remaining_s(self) -> float:
        """Time until the end of the call, above 0."""
        return remaining_s(self._end_s)

    def raise_first_error(self) -> None:
        """Raise the error of the first attempt if this is tenacity's first one."""
        error, self._first_error = self._first_error, None
        if error is not None:
            raise error

    def policy(self) -> dict[str, Any]:
        """Return the arguments of Retrying and AsyncRetrying."""
        from tenacity import stop_before_delay, wait_exponential, wait_random

        backoff = wait_exponential(multiplier=_MIN_PAUSE_S, max=_MAX_BACKOFF_S) + wait_random(0, _MIN_PAUSE_S / 2)
        is_out_of_time = stop_before_delay(self.remaining_s)

        def pause_s(state: RetryCallState) -> float:
            stated_s = stated_pause_s(state)
            return backoff(state) if stated_s is None else max(stated_s, _MIN_PAUSE_S)

        return {
            "retry": lambda state: _is_retryable(_error(state)),
            "wait": pause_s,
            "stop": lambda state: _is_last_attempt(state) or is_out_of_time(state),
            "reraise": True,
        }


def _error(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome is not None else None


def _is_retryable(exc: BaseException | None) -> bool:
    if isinstance(exc, RequestRefusedError):
        return exc.code in SHUTTING_DOWN or exc.retry_after_s is not None
    return isinstance(exc, ConnectionFailedError) and not isinstance(exc, TlsHandshakeError)


def _is_last_attempt(state: RetryCallState) -> bool:
    return stated_pause_s(state) is None and state.attempt_number >= MAX_ATTEMPTS
