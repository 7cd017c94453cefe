"""Parses the JSON of requests within their limits. Large texts take turns, because parsing holds Python's lock."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.wire.json.exact import discard
from savedmodel_bakery.wire.json.limits import ParseLimits, Survey

_CHECK_INTERVAL_S = 0.05
_LARGE = threading.Lock()  # one for the process, as Python's own lock is


class Documents:
    """The JSON documents of all requests.

    Args:
        nesting: lists and objects inside each other that a document may have.

    Attributes:
        nesting: see above.
    """

    def __init__(self, nesting: int) -> None:
        self.nesting = nesting

    def parsing(self, context: RequestContext) -> AbstractContextManager[ParseLimits]:
        """Return a context manager for the parse of one document; its limits may be used until the end of the block.

        The parse raises StatusError: CANCELLED or DEADLINE_EXCEEDED while the request waits; RESOURCE_EXHAUSTED: the
        document is nested too deep, or there is not enough memory for it.
        """
        return _Parse(self, context)

    @contextmanager
    def turn(self, context: RequestContext) -> Iterator[None]:
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


class _Parse:
    """The parse of one document. For a small one, nothing is prepared."""

    def __init__(self, documents: Documents, context: RequestContext) -> None:
        self._documents = documents
        self._context = context
        self._large: ExitStack | None = None

    def __enter__(self) -> ParseLimits:
        self._containers: list[Any] = []
        return ParseLimits(self._documents.nesting, self._context.check, self._prepare, self._containers.append)

    def __exit__(self, *_: object) -> None:
        if self._large:
            self._large.close()

    def _prepare(self, content: Survey) -> None:
        self._context.charge(content.size)
        if content.is_large:
            self._large = ExitStack()
            self._large.enter_context(self._documents.turn(self._context))
            self._large.callback(discard, self._containers)
