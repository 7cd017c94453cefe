"""JSON values to arrays, by tensorflow_model_server's rules for what value fits which element type.

Regular lists, the common case, are checked and packed a level at a time without a Python step per element;
what that finds fault with is walked once more, element by element, for the exact refusal. Neither way
recurses.
"""

from __future__ import annotations

import binascii
import contextlib
import string
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np
import pybase64

from savedmodel_bakery.wire.dtypes import STRING, DType
from savedmodel_bakery.wire.json.text import JsonValue, members_of, show_value, type_name
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

MAX_DIMENSIONS = 254

_FLOATS = frozenset({"float", "double"})
# The range that is checked, not that of the type: 300 for an int8 wraps.
_INT_RANGES = {
    **dict.fromkeys(("int32", "int16", "int8", "uint8"), (-(2**31), 2**31 - 1)),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
_BASE64 = (string.ascii_letters + string.digits + "+/").encode()
_WHITE_SPACE = b" \t\n\v\f\r"


def decode_array(value: JsonValue, dtype: DType, name: str) -> np.ndarray:
    """Turn a scalar, a nested list or a `{"b64": …}` object into an array.

    Args:
        value: what `wire.json_text.parse_json` gave.
        dtype: element type; strings become an object array of bytes.
        name: alias of the input, for the error about too many dimensions.

    Raises:
        StatusError: INVALID_ARGUMENT for irregular nesting and values of another type, UNIMPLEMENTED for
            element types that JSON can't carry.
    """
    regular = decode_regular(value, dtype, name)
    if regular is not None:
        return regular
    shape, leaves = walk(value, dtype)
    return pack(leaves, shape, dtype, name)


def decode_regular(value: JsonValue, dtype: DType, name: str) -> np.ndarray | None:
    """As `decode_array` for values that are in order; None where `walk` has to say more."""
    shape: list[int] = []
    leaves: Sequence[JsonValue] = [value]
    while leaves and isinstance(leaves[0], list):
        if len(shape) == MAX_DIMENSIONS or set(map(type, leaves)) != {list}:
            return None
        sizes = set(map(len, leaves))  # type: ignore[arg-type]
        if len(sizes) != 1:
            return None
        shape.append(sizes.pop())
        leaves = list(chain.from_iterable(leaves))  # type: ignore[arg-type]
    if not _are_plainly(leaves, dtype):
        return None
    try:
        return pack(leaves, shape, dtype, name)
    except (OverflowError, StatusError):
        return None


def _are_plainly(leaves: Sequence[JsonValue], dtype: DType) -> bool:
    kinds = set(map(type, leaves))
    if dtype.name in _FLOATS:
        return kinds <= {float, int}
    if dtype.name in _INT_RANGES:
        low, high = _INT_RANGES[dtype.name]
        return kinds <= {int} and (not kinds or (low <= min(leaves) and max(leaves) <= high))  # type: ignore[type-var,operator]
    if dtype is STRING:
        return kinds <= {str} or (kinds <= {str, dict} and all(isinstance(v, str) or is_base64(v) for v in leaves))
    return kinds <= ({bool} if dtype.name == "bool" else set())


def walk(value: JsonValue, dtype: DType) -> tuple[list[int], list[JsonValue]]:
    """Check a value element by element, in the order of the text.

    Returns:
        The shape, read off the first element of each level, and the checked elements, flat.

    Raises:
        StatusError: as `decode_array`.
    """
    shape: list[int] = []
    first = value
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
    rank = len(shape)
    leaves: list[JsonValue] = []
    open_: list[Iterator[JsonValue]] = [iter((value,))]
    while open_:
        level = len(open_) - 1
        for item in open_[-1]:
            if isinstance(item, list):
                _check_list(item, level, shape)
                open_.append(iter(item))
                break
            if level != rank:
                raise invalid_argument(
                    f"JSON Value: {show_value(item)} found at incorrect level: {level + 1} in the JSON DOM."
                    f" Expected at level: {rank}"
                )
            check_leaf(item, dtype)
            leaves.append(item)
        else:
            open_.pop()
    return shape, leaves


def _check_list(item: list[JsonValue], level: int, shape: list[int]) -> None:
    if level >= len(shape):
        raise invalid_argument(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(item) != shape[level]:
        raise invalid_argument(
            f"Encountered list at unexpected size: {len(item)} at level: {level} expected size: {shape[level]}"
        )


def check_leaf(value: JsonValue, dtype: DType) -> None:
    """Refuse an element that does not fit the element type.

    Raises:
        StatusError: INVALID_ARGUMENT; UNIMPLEMENTED for element types that JSON can't carry, unless it is an object.
    """
    if dtype.name in _FLOATS:
        fits = _is_number(value)
    elif dtype.name in _INT_RANGES:
        low, high = _INT_RANGES[dtype.name]
        fits = _is_number(value) and isinstance(value, int) and low <= value <= high
    elif dtype.name == "bool":
        fits = isinstance(value, bool)
    elif dtype is STRING:
        if isinstance(value, dict):
            decode_base64(value)
        fits = isinstance(value, (str, dict))
    elif isinstance(value, dict):
        fits = False
    else:
        raise StatusError(Code.UNIMPLEMENTED, f"Conversion of JSON Value: {show_value(value)} to type: {dtype.name}")
    if not fits:
        raise invalid_argument(
            f"JSON Value: {show_value(value)} Type: {type_name(value)} is not of expected type: {dtype.name}"
        )


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def pack(leaves: Sequence[JsonValue], shape: Sequence[int], dtype: DType, name: str) -> np.ndarray:
    """Make an array of elements that fit its type.

    Raises:
        StatusError: INVALID_ARGUMENT where the shape has more dimensions than an array can have.
    """
    flat = _packer(dtype)(leaves, dtype)
    try:
        if len(shape) <= MAX_DIMENSIONS:
            return flat.reshape(tuple(shape))
    except ValueError:
        pass  # numpy itself stops at 32 or 64 dimensions
    raise invalid_argument(f"tensor parsing error: {name}")


def _packer(dtype: DType) -> Callable[[Sequence[JsonValue], DType], np.ndarray]:
    if dtype.name in _FLOATS:
        return _pack_floats
    return _pack_strings if dtype is STRING else _pack_integers


def _pack_floats(leaves: Sequence[JsonValue], dtype: DType) -> np.ndarray:
    doubles = np.frombuffer(array("d", leaves), np.float64)  # type: ignore[type-var]
    with np.errstate(over="ignore", under="ignore"):
        return doubles.astype(dtype.numpy, copy=False)


def _pack_integers(leaves: Sequence[JsonValue], dtype: DType) -> np.ndarray:
    code = "Q" if dtype.name == "uint64" else "q"
    wide = np.frombuffer(array(code, leaves), np.uint64 if code == "Q" else np.int64)  # type: ignore[type-var]
    return wide.astype(dtype.numpy, copy=False)


def _pack_strings(leaves: Sequence[JsonValue], dtype: DType) -> np.ndarray:
    strings = np.empty(len(leaves), dtype.numpy)
    strings[:] = [
        leaf.encode("utf-8", "surrogateescape") if isinstance(leaf, str) else decode_base64(leaf) for leaf in leaves
    ]
    return strings


def is_base64(value: JsonValue) -> bool:
    """Whether a value is an object of the single key `b64` with a string in it."""
    return isinstance(value, dict) and len(members_of(value)) == 1 and isinstance(value.get("b64"), str)


def decode_base64(value: JsonValue) -> bytes:
    """The bytes of a `{"b64": …}` object: standard alphabet, white space skipped, padding right or left out.

    Padding may be of `=` or of `.`, as abseil's Base64Unescape takes both.

    Raises:
        StatusError: INVALID_ARGUMENT for other objects and other spellings.
    """
    text = value.get("b64") if isinstance(value, dict) and is_base64(value) else None
    if not isinstance(text, str):
        raise invalid_argument(f"JSON Value: {show_value(value)} not formatted correctly for base64 data")
    content = text.encode("utf-8", "surrogateescape")
    with contextlib.suppress(binascii.Error):
        return pybase64.b64decode(content, validate=True)
    compact = content.translate(None, _WHITE_SPACE)
    digits = compact.rstrip(b"=.")
    padding = len(compact) - len(digits)
    if len(digits) % 4 == 1 or padding not in (0, -len(digits) % 4) or digits.translate(None, _BASE64):
        raise invalid_argument("Unable to base64 decode")
    return pybase64.b64decode(digits + b"=" * (-len(digits) % 4), validate=True)
