"""Counts calls by token, and calls that exceed a limit."""

from __future__ import annotations

from prometheus_client import Counter

from savedmodel_bakery.serving.telemetry.registry import REGISTRY
from savedmodel_bakery.wire.status import StatusError

TOKEN_CALLS = Counter(
    "bakery_token_calls",
    "Calls with a valid token, by its name in the tokens file.",
    ("token_name",),
    registry=REGISTRY,
)
REJECTED_CALLS = Counter(
    "bakery_rejected_calls",
    "Calls that were rejected because of a limit: a flag, a key of the tokens file, or the caller's deadline.",
    ("entrypoint", "limit"),
    registry=REGISTRY,
)
HALVED_BATCHES = Counter("bakery_halved_batches", "Batches that failed and ran again in halves.", registry=REGISTRY)


def count_rejection(entrypoint: str, error: StatusError) -> None:
    """Count a call that failed, if a limit was the reason.

    Args:
        entrypoint: `GRPC` or `REST`.
        error: of the call.
    """
    if error.limit is not None:
        REJECTED_CALLS.labels(entrypoint, error.limit).inc()
