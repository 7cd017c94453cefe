"""Bodies of REST Predict responses, in both roles: columnar (`outputs`) or in row format (`predictions`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from savedmodel_bakery.wire.dtypes import STRING, DType
from savedmodel_bakery.wire.json.decode import decode_exact, read_response
from savedmodel_bakery.wire.json.encode import element_texts, nest, new_line, quote_bytes
from savedmodel_bakery.wire.json.predict import BYTES_SUFFIX
from savedmodel_bakery.wire.status import invalid_argument

if TYPE_CHECKING:
    from savedmodel_bakery.wire.tensors import Tensor

_ELEMENT_BYTES = 256  # of a number as text, in the lists of texts, and in the response
_CONTENT_COPIES = 30  # with escapes


def decode_response(body: bytes, output_dtypes: Mapping[str, DType]) -> dict[str, np.ndarray]:
    """Read the body of the response to a columnar Predict request (client role).

    The body has `outputs`: the bare value of a single output, or an object of several. Plain strings need not be UTF-8.
    """
    document = read_response(body)
    if "outputs" not in document:
        raise invalid_argument('the response has no "outputs"')
    columns = document["outputs"]
    if len(output_dtypes) == 1:
        columns = dict.fromkeys(output_dtypes, columns)
    if not isinstance(columns, dict) or columns.keys() != output_dtypes.keys():
        names = ", ".join(sorted(columns)) if isinstance(columns, dict) else "one bare value"
        raise invalid_argument(
            f"the response has {names}; the signature's outputs are {', '.join(sorted(output_dtypes))}"
        )
    return {
        alias: decode_exact(columns[alias], dtype, f'output "{alias}"', dtype.name)
        for alias, dtype in output_dtypes.items()
    }


def encode_response(outputs: Mapping[str, Tensor], *, row_format: bool) -> bytes:
    """Write the body of a Predict response: columnar, or row by row (server role).

    Strings are written as they are, valid UTF-8 or not; those of an alias that ends in `_bytes` as base64. In row
    format, the first axes of all outputs must have the same size.
    """
    text = _row_text(outputs) if row_format else _column_text(outputs)
    return text.encode("latin-1")


def response_size(outputs: Mapping[str, Tensor]) -> int:
    """Return an estimate, rather too high, of the bytes of memory that `encode_response` needs."""
    size = 0
    for array, dtype, _ in outputs.values():
        size += _ELEMENT_BYTES * array.size
        if dtype is STRING:
            size += _CONTENT_COPIES * sum(map(len, array.flat))
    return size


def _tensor_texts(alias: str, tensor: Tensor, *, rows: int | None, level: int) -> list[str]:
    """Write a tensor inside `level` lists and objects: whole if `rows` is None, else each row on one line."""
    shape = tensor.array.shape if rows is None else tensor.array.shape[1:]
    as_base64 = alias.endswith(BYTES_SUFFIX)
    texts = element_texts(tensor.array, tensor.dtype, as_base64=as_base64, level=level + len(shape))
    return nest(texts, shape, count=1 if rows is None else rows, level=level, one_line=rows is not None)


def _column_text(outputs: Mapping[str, Tensor]) -> str:
    level = 1 if len(outputs) == 1 else 2
    texts = {alias: _tensor_texts(alias, tensor, rows=None, level=level)[0] for alias, tensor in outputs.items()}
    value = texts.popitem()[1] if len(texts) == 1 else _object_text(texts, 1)
    return f'{{\n    "outputs": {value}\n}}'


def _object_text(texts: Mapping[str, str], level: int) -> str:
    inner = new_line(level + 1)
    members = [f"{quote_bytes(alias)}: {texts[alias]}" for alias in sorted(texts)]
    return "{" + inner + f",{inner}".join(members) + new_line(level) + "}"


def _row_text(outputs: Mapping[str, Tensor]) -> str:
    rows = _count_rows(outputs)
    single = len(outputs) == 1
    columns = {
        alias: _tensor_texts(alias, tensor, rows=rows, level=2 if single else 3) for alias, tensor in outputs.items()
    }
    if not rows:
        entries = "[]"
    elif single:
        [texts] = columns.values()
        entries = "[" + ", ".join(texts) + new_line(1) + "]"
    else:
        inner = new_line(2)
        objects = [_object_text(dict(zip(columns, row, strict=True)), 2) for row in zip(*columns.values(), strict=True)]
        entries = "[" + inner + f",{inner}".join(objects) + new_line(1) + "]"
    return f'{{\n    "predictions": {entries}\n}}'


def _count_rows(outputs: Mapping[str, Tensor]) -> int:
    rows: int | None = None
    for alias, (array, *_) in sorted(outputs.items()):
        if array.ndim == 0:
            raise invalid_argument(f"Tensor name: {alias} has no shape information ")
        if rows is not None and len(array) != rows:
            raise invalid_argument(f"Tensor name: {alias} has inconsistent batch size: {len(array)} expecting: {rows}")
        rows = len(array)
    return rows or 0
