"""Unpacks and parses the bodies of requests within their limits."""

from __future__ import annotations

import gc
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext

from savedmodel_bakery.serving.admission.budget import Cost
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import OverloadError
from savedmodel_bakery.wire.json.parser import ParseLimits, Survey, discard

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_STEP_BYTES = 2**20
_MAX_RATIO = 1032  # of deflate (zlib's technical details)
_CHECK_INTERVAL_S = 0.05
_LARGE = threading.Lock()  # one for the process, as Python's own lock is


def unpack(packed: bytes, *, wbits: int, limit: int, before_step: Callable[[int], None]) -> bytes:
    """Unpack a message; raises zlib.error if it is damaged or cut off.

    At most one byte more than `limit` is returned. `wbits` is the format, as for `zlib.decompressobj`. `before_step` is
    called with the bytes that are unpacked next, at most; it may raise StatusError.
    """
    unpacker = zlib.decompressobj(wbits=wbits)
    pieces: list[bytes] = []
    size = 0
    while not unpacker.eof and size <= limit:
        step = min(_STEP_BYTES, limit + 1 - size)
        before_step(min(step, len(packed) * _MAX_RATIO))
        piece = unpacker.decompress(packed, step)
        if not piece and not unpacker.eof:
            raise zlib.error("the compressed message is cut off")
        pieces.append(piece)
        size += len(piece)
        packed = unpacker.unconsumed_tail
    return b"".join(pieces)


def unpack_all(packed: bytes, *, limit: int, before_step: Callable[[int], None]) -> bytes:
    """Unpack a message that is compressed with gzip or deflate (RFC 1952, RFC 1950); arguments as for `unpack`.

    Raises:
        OverloadError: the unpacked message has more bytes than the limit.
    """
    unpacked = unpack(packed, wbits=_GZIP_OR_ZLIB, limit=limit, before_step=before_step)
    if len(unpacked) > limit:
        raise OverloadError(
            f"after unpacking, the request has more than {limit} bytes (--max_unpacked_bytes)",
            limit="max_unpacked_bytes",
        )
    return unpacked


def charge_unpacked(context: RequestContext, size: int) -> None:
    """Charge a request over HTTP for the bytes that are unpacked next, if its caller still waits."""
    context.check()
    context.charge(Cost.UNPACKED * size)


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
