"""Decodes masks from COCO's compressed run lengths.

Source: github.com/cocodataset/cocoapi, common/maskApi.c, rleFrString and rleDecode.
"""

from __future__ import annotations

import numpy as np

ALIAS = "mask_counts"
"""The output of a baked model with the run lengths of masks; that of a head has the head's name before it."""

_BITS = 5  # of a number in each character
_NEGATIVE, _MORE, _FIRST_CHARACTER = 16, 32, 48


def decode_counts(counts: str) -> np.ndarray:
    """Return the lengths of the runs of a mask, int64 [runs], of which the first is not set.

    Raises:
        ValueError: the text has another character, ends within a number, or has a negative length.
    """
    lengths: list[int] = []
    number = shift = 0
    for character in counts.encode("ascii"):
        digit = character - _FIRST_CHARACTER
        if not 0 <= digit < 2 * _MORE:
            raise ValueError(f"invalid character {chr(character)!r}: must be from '0' to 'o'")
        number |= (digit & (_MORE - 1)) << shift
        shift += _BITS
        if digit & _MORE:
            continue
        if digit & _NEGATIVE:
            number -= 1 << shift
        lengths.append(number + (lengths[-2] if len(lengths) > 2 else 0))
        number = shift = 0
    if shift:
        raise ValueError("it ends within a number")
    if min(lengths, default=0) < 0:
        raise ValueError(f"it has a run of {min(lengths)} pixels")
    return np.array(lengths, np.int64)


def iou(counts: str, other: str) -> float:
    """Return the intersection of two masks of one size over their union, 1 if both are empty; 0 if their sizes differ.

    Raises:
        ValueError: one of the texts does not hold run lengths.
    """
    ends, other_ends = (np.cumsum(decode_counts(each)) for each in (counts, other))
    if [*ends[-1:]] != [*other_ends[-1:]]:
        return 0.0
    all_ends = np.union1d(ends, other_ends)
    lengths = np.diff(all_ends, prepend=0)
    is_set, is_other_set = (np.searchsorted(each, all_ends) % 2 == 1 for each in (ends, other_ends))
    union = lengths[is_set | is_other_set].sum()
    return float(lengths[is_set & is_other_set].sum() / union) if union else 1.0


def difference(counts: str, other: str) -> float:
    """Return 1 less the intersection over union of two masks; 1 if one of the texts does not hold run lengths."""
    try:
        return 1 - iou(counts, other)
    except ValueError:
        return 1.0


def decode_mask(counts: str, size: tuple[int, int]) -> np.ndarray:
    """Return a mask, bool [height, width], from its run lengths and its height and width.

    Raises:
        ValueError: the text is no run lengths, or these are of another number of pixels.
    """
    lengths = decode_counts(counts)
    height, width = size
    if lengths.sum() != height * width:
        raise ValueError(f"it has {lengths.sum()} pixels: must be {height * width}, of {width}x{height}")
    is_set = np.arange(len(lengths)) % 2 == 1
    return np.asarray(np.repeat(is_set, lengths).reshape(width, height).T)
