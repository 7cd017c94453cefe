"""Parses the JSON of requests within their limits. Large texts take turns, because parsing holds Python's lock."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.wire.json.exact import discard
from savedmodel_bakery.wire.json.limits import ParseLimits, Survey

_CHECK_INTERVAL_S = 0.05


class Documents:
    """The JSON documents of all requests.

    Args:
        nesting: lists and objects inside each other that a document may have.
    """

    def __init__(self, nesting: int) -> None:
        self._nesting = nesting
        self._large = threading.Lock()

    @contextmanager
    def parsing(self, context: RequestContext) -> Iterator[ParseLimits]:
        """Yield the limits for the parse of one document, which may be used until the end of the `with` block.

        Raises:
            StatusError: CANCELLED or DEADLINE_EXCEEDED while the request waits; RESOURCE_EXHAUSTED: the document is
                nested too deep, or there is not enough memory for it.
        """
        containers: list[Any] = []
        with ExitStack() as stack:

            def prepare(content: Survey) -> None:
                context.charge(content.size)
                if content.is_large:
                    stack.enter_context(self._turn(context))
                    stack.callback(discard, containers)

            yield ParseLimits(self._nesting, context.check, prepare, containers.append)

    @contextmanager
    def _turn(self, context: RequestContext) -> Iterator[None]:
        """Wait for the documents before this one, and let other requests run meanwhile."""
        with ExitStack() as stack:
            if not self._large.acquire(blocking=False):
                with context.turn.passed_on() if context.turn else nullcontext():
                    while not self._large.acquire(timeout=_CHECK_INTERVAL_S):
                        context.check()
                    stack.callback(self._large.release)  # here, because waiting for the turn again may fail
            else:
                stack.callback(self._large.release)
            # Each collection of garbage would look at every value of the document, and block all threads meanwhile.
            gc.disable()
            stack.callback(gc.enable)
            yield
