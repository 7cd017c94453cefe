"""Unpacks compressed messages within limits."""

from __future__ import annotations

import zlib
from collections.abc import Callable

_STEP_BYTES = 2**20
_MAX_RATIO = 1032  # of deflate (zlib's technical details)


def unpack(packed: bytes, *, wbits: int, limit: int, before_step: Callable[[int], None]) -> bytes:
    """Unpack a message.

    Args:
        packed: the message.
        wbits: its format, as for `zlib.decompressobj`.
        limit: bytes of the unpacked message, of which one more is returned at most.
        before_step: is called with the bytes that are unpacked next, at most; may raise StatusError.

    Raises:
        zlib.error: the message is damaged or cut off.
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
