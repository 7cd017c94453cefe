"""Finds runs of elements or members in a large JSON text that can be parsed without the rest of it. Does not parse."""

from __future__ import annotations

import numpy as np

from savedmodel_bakery.wire.json.limits import SLICE_BYTES, depths_of, inside_strings

_MIN_BYTES = SLICE_BYTES // 8
_ATTEMPTS = 16


class RunFinder:
    """Finds runs in one text.

    A search takes about a millisecond, so searches that find little are limited per part of the text: then the caller
    reads token by token for a while.

    Args:
        text: the whole text.
    """

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._attempts = _ATTEMPTS
        self._paused_until = 0

    def find(self, position: int) -> int:
        """Return the end of a run: that of its last element, or of the white space that follows it.

        Args:
            position: within a list or object, after its opening bracket or a comma.

        Returns:
            The offset of a comma or of the closing bracket, or `position` if there is no long run.
        """
        if position < self._paused_until or len(self._text) - position < _MIN_BYTES:
            return position
        if not self._attempts:
            self._attempts = _ATTEMPTS
            self._paused_until = position + SLICE_BYTES
            return position
        end = position + _run_length(self._text[position : position + SLICE_BYTES])
        if end - position < _MIN_BYTES:
            self._attempts -= 1
            return position
        self._attempts = _ATTEMPTS
        return end

    def pause(self, end: int) -> None:
        """Find nothing before `end`, because the run that ends there can't be parsed on its own."""
        self._paused_until = end


def _run_length(piece: bytes) -> int:
    depths, _ = depths_of(piece, in_string=False)
    closing = int(np.argmax(depths < 0))
    if depths[closing] < 0:
        return closing
    is_comma = np.frombuffer(piece, np.uint8) == ord(",")
    commas = np.flatnonzero(is_comma & (depths == 0))
    if b'"' in piece and commas.size:
        commas = commas[~inside_strings(piece, in_string=False)[commas]]
    return int(commas[-1]) if commas.size else 0
