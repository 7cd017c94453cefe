"""Decodes JSON values to arrays, by tensorflow_model_server's rules for which value fits which element type.

Regular lists, the common case, are checked and packed level by level, without a Python step per element. If that finds
a fault, the value is checked again element by element, for the exact error message. Neither way recurses.
"""

from __future__ import annotations

import binascii
import contextlib
import json
import string
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pybase64

from savedmodel_bakery.wire.dtypes import BY_NAME, MAX_DIMENSIONS, STRING, DType, object_array
from savedmodel_bakery.wire.json.encode import show_value, type_name
from savedmodel_bakery.wire.json.parser import NO_LIMITS, JsonValue, ParseLimits, members_of, parse_json
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

_FLOATS = frozenset({"float", "double"})
# The range that tensorflow_model_server checks, which is not that of the type: 300 for an int8 wraps.
_INT_RANGES = {
    **dict.fromkeys(("int32", "int16", "int8", "uint8"), (-(2**31), 2**31 - 1)),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
DECODABLE_TYPES = tuple(sorted({*_FLOATS, *_INT_RANGES, "bool", "string"}))
_SLICE = 2**16  # elements per step, so that other threads are blocked for milliseconds only
_BASE64_DIGITS = (string.ascii_letters + string.digits + "+/").encode()
_WHITE_SPACE = b" \t\n\v\f\r"


def parse_document(body: bytes, limits: ParseLimits = NO_LIMITS) -> tuple[dict[str, JsonValue], str]:
    """Parse the body of a request: an object with an optional `signature_name`."""
    document = parse_json(body, limits)
    if not isinstance(document, dict):
        raise invalid_argument(f"JSON Value: {show_value(document)} Is not object")
    signature_name = document.get("signature_name", "")
    if not isinstance(signature_name, str):
        raise document_error(document, "not formatted correctly. 'signature_name' key must be a string value.")
    return document, signature_name


def document_error(document: dict[str, JsonValue], reason: str) -> StatusError:
    """Return the error for a whole document; its message quotes the beginning."""
    return invalid_argument(f"JSON Value: {show_value(document)} {reason}")


def read_response(body: bytes) -> dict[str, Any]:
    """Read the JSON object of a response (client role). Bytes that are not valid UTF-8 become surrogate escapes."""
    try:
        document = json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise invalid_argument(f"the response is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise invalid_argument("the response is not a JSON object")
    return document


def decode_array(value: JsonValue, dtype: DType, name: str) -> np.ndarray:
    """Decode a scalar, a nested list or a `{"b64": …}` object to an array; strings become an object array of bytes.

    The error for element types that JSON cannot represent is UNIMPLEMENTED.
    """
    regular = decode_regular(value, dtype, name)
    if regular is not None:
        return regular
    shape, elements = check_elements(value, dtype)
    return pack(elements, shape, dtype, name)


def decode_exact(value: JsonValue, dtype: DType, title: str, type_name: str) -> np.ndarray:
    """Decode a value as `decode_array` does, but reject integers that the element type cannot represent.

    For error messages, `title` is the tensor in words, such as `output "x"`, and `type_name` its type in the protocol.
    """
    is_integer = dtype.numpy.kind in "iu" and dtype.name != "uint64"
    try:
        array = decode_array(value, BY_NAME["int64"] if is_integer else dtype, title)
    except (StatusError, OverflowError, UnicodeEncodeError) as error:
        reason = error.message if isinstance(error, StatusError) else error
        raise invalid_argument(f"{title} cannot be read as {type_name}: {reason}") from error
    return narrow(array, dtype, title, type_name) if is_integer else array


def narrow(values: np.ndarray, dtype: DType, title: str, type_name: str) -> np.ndarray:
    """Convert integers to their element type, if they are in its range."""
    limits = np.iinfo(dtype.numpy)
    if values.size and not (limits.min <= values.min() and values.max() <= limits.max):
        raise invalid_argument(
            f"{title} cannot be read as {type_name}: an integer is not between {limits.min} and {limits.max}"
        )
    return values.astype(dtype.numpy, copy=False)


def decode_regular(value: JsonValue, dtype: DType, name: str) -> np.ndarray | None:
    """Decode a valid value as `decode_array` does; return None if it may be invalid."""
    shape: list[int] = []
    elements: Sequence[JsonValue] = [value]
    while elements and isinstance(elements[0], list):
        if len(shape) == MAX_DIMENSIONS or _types(elements) != {list}:
            return None
        sizes: set[int] = set()
        inner: list[JsonValue] = []
        for part in _slices(elements):
            sizes.update(map(len, part))  # type: ignore[arg-type]
            if len(sizes) != 1:
                return None
            inner.extend(chain.from_iterable(part))  # type: ignore[arg-type]
        shape.append(sizes.pop())
        elements = inner
    if not _all_fit(elements, dtype):
        return None
    try:
        return pack(elements, shape, dtype, name)
    except (OverflowError, StatusError):
        return None


def _slices(elements: Sequence[JsonValue]) -> Iterable[Sequence[JsonValue]]:
    if len(elements) <= _SLICE:
        return (elements,)
    return (elements[start : start + _SLICE] for start in range(0, len(elements), _SLICE))


def _types(elements: Sequence[JsonValue]) -> set[type]:
    types: set[type] = set()
    for part in _slices(elements):
        types.update(map(type, part))
    return types


def _all_fit(elements: Sequence[JsonValue], dtype: DType) -> bool:
    types = _types(elements)
    if dtype.name in _FLOATS:
        return types <= {float, int}
    if dtype.name in _INT_RANGES:
        low, high = _INT_RANGES[dtype.name]
        return types <= {int} and all(
            low <= min(part) and max(part) <= high  # type: ignore[type-var,operator]
            for part in _slices(elements)
            if part
        )
    if dtype is STRING:
        return types <= {str} or (types <= {str, dict} and all(isinstance(v, str) or is_base64(v) for v in elements))
    return types <= ({bool} if dtype.name == "bool" else set())


def check_elements(value: JsonValue, dtype: DType) -> tuple[list[int], list[JsonValue]]:
    """Check a value element by element, in the order of the text.

    Returns the shape, taken from the first element of each level, and all elements, flat.
    """
    shape: list[int] = []
    first = value
    while isinstance(first, list):
        shape.append(len(first))
        first = first[0] if first else None
    rank = len(shape)
    elements: list[JsonValue] = []
    stack: list[Iterator[JsonValue]] = [iter((value,))]
    while stack:
        level = len(stack) - 1
        for item in stack[-1]:
            if isinstance(item, list):
                _check_list(item, level, shape)
                stack.append(iter(item))
                break
            if level != rank:
                raise invalid_argument(
                    f"JSON Value: {show_value(item)} found at incorrect level: {level + 1} in the JSON DOM."
                    f" Expected at level: {rank}"
                )
            _check_element(item, dtype)
            elements.append(item)
        else:
            stack.pop()
    return shape, elements


def _check_list(item: list[JsonValue], level: int, shape: list[int]) -> None:
    if level >= len(shape):
        raise invalid_argument(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(item) != shape[level]:
        raise invalid_argument(
            f"Encountered list at unexpected size: {len(item)} at level: {level} expected size: {shape[level]}"
        )


def _check_element(value: JsonValue, dtype: DType) -> None:
    """Reject an element that does not fit the element type; with UNIMPLEMENTED if JSON cannot represent that type."""
    if dtype.name in _FLOATS:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    elif dtype.name in _INT_RANGES:
        low, high = _INT_RANGES[dtype.name]
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
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


def pack(elements: Sequence[JsonValue], shape: Sequence[int], dtype: DType, name: str) -> np.ndarray:
    """Make an array of elements that fit its type."""
    flat = _pack_strings(elements) if dtype is STRING else _pack_numbers(elements, dtype)
    try:
        if len(shape) <= MAX_DIMENSIONS:
            return flat.reshape(tuple(shape))
    except ValueError:
        pass  # numpy allows 32 or 64 dimensions
    raise invalid_argument(f"tensor parsing error: {name}")


def _pack_numbers(elements: Sequence[JsonValue], dtype: DType) -> np.ndarray:
    code = "d" if dtype.name in _FLOATS else "Q" if dtype.name == "uint64" else "q"
    packed: array[Any] = array(code)
    for part in _slices(elements):
        packed.fromlist(part)  # type: ignore[arg-type]
    with np.errstate(over="ignore", under="ignore"):
        return np.frombuffer(packed, code).astype(dtype.numpy, copy=False)


def _pack_strings(elements: Sequence[JsonValue]) -> np.ndarray:
    return object_array(
        [
            element.encode("utf-8", "surrogateescape") if isinstance(element, str) else decode_base64(element)
            for element in elements
        ]
    )


def is_base64(value: JsonValue) -> bool:
    """Return whether a value is an object with the single key `b64`, whose value is a string."""
    if not isinstance(value, dict) or len(value) != 1 or not isinstance(value.get("b64"), str):
        return False
    return type(value) is dict or len(members_of(value)) == 1  # only `Members` can repeat a name


def decode_base64(value: JsonValue) -> bytes:
    """Decode a `{"b64": …}` object: standard alphabet, with or without padding; white space is ignored.

    Padding is `=` or `.`, as abseil's Base64Unescape accepts both.
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
    if len(digits) % 4 == 1 or padding not in (0, -len(digits) % 4) or digits.translate(None, _BASE64_DIGITS):
        raise invalid_argument("Unable to base64 decode")
    return pybase64.b64decode(digits + b"=" * (-len(digits) % 4), validate=True)
