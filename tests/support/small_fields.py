"""Serialized requests of many small fields, which protobuf turns into far more memory."""

from __future__ import annotations

from collections.abc import Callable

from savedmodel_bakery.wire.encoding import varint


def delimited(number: int, content: bytes) -> bytes:
    """A field with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def tensor(fields: bytes) -> bytes:
    """An input x of type float of a PredictRequest, with fields of a TensorProto."""
    return delimited(2, delimited(1, b"x") + delimited(2, b"\x08\x01" + fields))


def examples(fields: bytes) -> bytes:
    """The examples of a request: fields of an ExampleList."""
    return delimited(2, delimited(1, fields))


def features(fields: bytes) -> bytes:
    """An example: fields of Features."""
    return delimited(1, delimited(1, fields))


_ROW = features(b"".join(delimited(1, delimited(1, b"column %d" % number)) for number in range(20)))


def _repeat(field: bytes, size: int) -> bytes:
    """Repeat a field up to a number of bytes."""
    return field * (size // len(field))


_PREDICT = "Predict"
FIELDS: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "tasks": ("MultiInference", lambda size: _repeat(delimited(1, b""), size)),
    "inputs": (_PREDICT, lambda size: _repeat(delimited(2, b""), size)),
    "names of outputs": (_PREDICT, lambda size: _repeat(delimited(3, b""), size)),
    "texts": (_PREDICT, lambda size: tensor(_repeat(delimited(8, b""), size))),
    "integers": (_PREDICT, lambda size: tensor(delimited(10, b"\1" * size))),
    "small integers": (_PREDICT, lambda size: tensor(delimited(7, b"\1" * size))),
    "flags": (_PREDICT, lambda size: tensor(delimited(11, b"\1" * size))),
    "integers in fields of their own": (_PREDICT, lambda size: tensor(_repeat(b"\x50\1", size))),
    "floats": (_PREDICT, lambda size: tensor(delimited(5, b"\1" * size))),
    "sizes": (_PREDICT, lambda size: tensor(delimited(2, _repeat(delimited(2, b""), size)))),
    "handles": (_PREDICT, lambda size: tensor(_repeat(delimited(14, b""), size))),
    "variants": (_PREDICT, lambda size: tensor(_repeat(delimited(15, b""), size))),
    "examples": ("Classify", lambda size: examples(_repeat(delimited(1, b""), size))),
    "features": ("Classify", lambda size: examples(features(_repeat(delimited(1, b""), size)))),
    "rows of a table": ("Regress", lambda size: examples(_repeat(_ROW, size))),
    "unknown fields": (_PREDICT, lambda size: _repeat(delimited(99, b""), size)),
    "after a group, which ends the survey": (_PREDICT, lambda size: b"\x4b\x4c" + _repeat(delimited(2, b""), size)),
}
"""The method, and a function that makes a request of about so many bytes."""
