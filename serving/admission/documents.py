"""Parses the JSON of requests within their limits. Large texts take turns, because parsing holds Python's lock."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.wire.json.limits import ParseLimits, Survey
from savedmodel_bakery.wire.json.parser import discard

_CHECK_INTERVAL_S = 0.05
_LARGE = threading.Lock()  # one for the process, as Python's own lock is


@contextmanager
def parsing(context: RequestContext) -> Iterator[ParseLimits]:
    """Return a context manager for the parse of one document; its limits may be used until the end of the block.

    The parse raises StatusError: CANCELLED or DEADLINE_EXCEEDED while the request waits; RESOURCE_EXHAUSTED: there is
    not enough memory for the document.
    """
    with ExitStack() as stack:

        def prepare(content: Survey) -> None:
            context.charge(content.size)
            if content.is_large:
                stack.enter_context(_turn(context))

        yield ParseLimits(context.check, prepare, lambda value: stack.callback(discard, value))


@contextmanager
def _turn(context: RequestContext) -> Iterator[None]:
    """Wait for the documents before this one, and let other requests run meanwhile."""
    with ExitStack() as stack:
        if not _LARGE.acquire(blocking=False):
            with context.turn.passed_on() if context.turn else nullcontext():
                while not _LARGE.acquire(timeout=_CHECK_INTERVAL_S):
                    context.check()
                stack.callback(_LARGE.release)  # here, because waiting for the turn again may fail
        else:
            stack.callback(_LARGE.release)
        # Each collection of garbage would look at every value of the document, and block all threads meanwhile.
        gc.disable()
        stack.callback(gc.enable)
        yield
