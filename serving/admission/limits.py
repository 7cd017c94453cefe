"""The limits of one request and of all together, and the error of a request beyond one."""

from __future__ import annotations

from dataclasses import dataclass

from savedmodel_bakery.wire.status import Code, StatusError

RETRY_AFTER_S = 1.0  # at least, after a request is rejected because of others
READING_S = 5.0  # that a client has to read a response while other requests wait for memory
SMALL_BYTES = 2**16  # of a message that callers without a token may send, and of a body if no model runs


@dataclass(frozen=True)
class Limits:
    """Limits of requests; see the server's flags of the same names."""

    waiting_calls: int = 1000  # that wait for others to end, on each port
    connections: int = 10_000  # on each port
    message_bytes: int = 2**31 - 1  # as sent
    header_bytes: int = 64 * 2**10
    unpacked_bytes: int = 100 * 2**20  # of a message that is compressed
    header_timeout_s: float = 10.0
    body_timeout_s: float = 120.0  # from the headers to the end of the message
    rows: int = 10_000  # strings in one input, or serialized examples
    threads: int = 100_000  # of one kind of calls, such as the runs over gRPC


class OverloadError(StatusError):
    """RESOURCE_EXHAUSTED: a request exceeds a limit, or the server has no place, time or memory for it now.

    Its `limit` is the name of the flag that sets the limit, or `deadline`.
    """

    def __init__(self, message: str, retry_after_s: float | None = None, *, limit: str) -> None:
        super().__init__(Code.RESOURCE_EXHAUSTED, message, retry_after_s=retry_after_s, limit=limit)


def too_large(size: int, maximum: int, unit: str, *, limit: str, condition: str = "") -> OverloadError:
    """Return the error of a request that is larger than allowed; `condition` says when, if no flag sets the maximum."""
    condition = condition or f"(--{limit})"
    return OverloadError(f"the request has {size} {unit}; at most {maximum} are allowed {condition}", limit=limit)
