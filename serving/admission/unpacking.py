"""Unpacks compressed messages within limits."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from savedmodel_bakery.serving.admission.limits import OverloadError

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_STEP_BYTES = 2**20
_MAX_RATIO = 1032  # of deflate (zlib's technical details)


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
