"""The pauses between attempts to reach the broker or the model server."""

from __future__ import annotations

import random
from collections.abc import Iterator


def growing_pauses(max_s: float) -> Iterator[float]:
    """Yield seconds to wait: half a second, then twice as long each time up to `max_s`.

    Each is up to a quarter shorter or longer, so that several workers do not try at the same time.
    """
    pause_s = 0.5
    while True:
        yield pause_s * random.uniform(0.75, 1.25)
        pause_s = min(2 * pause_s, max_s)
