"""How much a worker takes on at a time: the memory of delivered messages, and that of calls."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CallLimits:
    """Limits of each call.

    Attributes:
        timeout_s: time limit.
        memory: of all calls together.
        max_rows: strings in one input, or examples.
    """

    timeout_s: float
    memory: MemoryBudget | None = None
    max_rows: int | None = None

    def context(self) -> RequestContext:
        """Return the context of a new call; close it at the call's end."""
        return RequestContext(timeout_s=self.timeout_s, memory=self.memory, max_rows=self.max_rows)


def divide_memory(budget_bytes: int, *, prefetch: int, max_message_bytes: int) -> tuple[int, MemoryBudget]:
    """Divide the memory budget between delivered messages and calls.

    The broker delivers a number of messages, whatever their size, so the number is reduced until messages of the
    largest size fit into half of the budget. One more message comes from the retry queue.

    Args:
        budget_bytes: for both; 0 for the default of `MemoryBudget`. Call this after the model has been loaded.
        prefetch: messages that may be delivered and not yet acknowledged.
        max_message_bytes: size of the largest message.

    Returns:
        The reduced number of messages, at least 1, and the memory of the calls, at least half of the budget.
    """
    total_bytes = MemoryBudget(budget_bytes).size
    reduced = max(1, min(prefetch, total_bytes // 2 // max_message_bytes - 1))
    if reduced < prefetch:
        logger.warning(
            "prefetching %d messages instead of %d, because messages of %d bytes (--max-message-bytes) must fit into "
            "half of %d bytes (--memory-budget-bytes)", reduced, prefetch, max_message_bytes, total_bytes,
        )  # fmt: skip
    return reduced, MemoryBudget(max(total_bytes - (reduced + 1) * max_message_bytes, total_bytes // 2))
