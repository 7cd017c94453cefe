"""Several Predict requests as one call: joined along their first axis, and its response taken apart again.

As `serving.runtimes.batching` does within a server, but before one: whoever answers sees one ordinary request.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from savedmodel_bakery.wire import schema, tensors
from savedmodel_bakery.wire.attachments import TensorMessage, parse_message
from savedmodel_bakery.wire.status import Code, StatusError

_MOST_BYTES = 64 << 20  # what is large gains nothing by being joined


def key_of(request: TensorMessage) -> Hashable:
    """Requests with equal keys can be joined; None is for one that can't.

    Equal are model, version, signature, outputs asked for, and of all inputs element type and shape but for the rows.
    """
    heads = _heads(request)
    shapes = {alias: tensors.read_shape(head) for alias, head in heads.items()}
    if not shapes or any(not shape for shape in shapes.values()) or len({shape[0] for shape in shapes.values()}) > 1:
        return None
    if count_rows(request) < 1 or _size_bytes(request) > _MOST_BYTES:
        return None
    inputs = tuple((alias, heads[alias].dtype, tuple(shapes[alias][1:])) for alias in sorted(heads))
    asked = request.message
    return asked.model_spec.SerializeToString(deterministic=True), tuple(asked.output_filter), inputs


def count_rows(request: TensorMessage) -> int:
    """Rows of a request that has a key."""
    return int(tensors.read_shape(next(iter(_heads(request).values())))[0])


def join(requests: Sequence[TensorMessage]) -> bytes:
    """One serialized request of several with the same key.

    Raises:
        StatusError: the values of one are not what its shape says.
    """
    joined = schema.PredictRequest()
    joined.model_spec.CopyFrom(requests[0].message.model_spec)
    joined.output_filter.extend(requests[0].message.output_filter)
    message = TensorMessage(joined, "inputs")
    columns = [request.arrays() for request in requests]
    for alias, dtype in requests[0].dtypes().items():
        message.add(alias, np.concatenate([arrays[alias] for arrays in columns]), packed=True, dtype=dtype)
    return message.SerializeToString()


def split(content: bytes, rows: Sequence[int]) -> list[bytes]:
    """A serialized response for each request, of that for all of them.

    Raises:
        StatusError: FAILED_PRECONDITION where an output has other rows than the inputs had.
    """
    response = parse_message(schema.PredictResponse, "outputs", content)
    arrays, dtypes = response.arrays(), response.dtypes()
    for alias, array in arrays.items():
        if array.ndim == 0 or len(array) != sum(rows):
            raise StatusError(Code.FAILED_PRECONDITION, f'output "{alias}" has not a row for each of the inputs')
    parts = []
    ends = np.cumsum(rows).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        part = schema.PredictResponse()
        part.model_spec.CopyFrom(response.message.model_spec)
        message = TensorMessage(part, "outputs")
        for alias, array in arrays.items():
            message.add(alias, array[start:end], packed=False, dtype=dtypes[alias])
        parts.append(message.SerializeToString())
    return parts


def _heads(request: TensorMessage) -> dict[str, Any]:
    """TensorProtos by alias, those without their values too."""
    inputs = request.message.inputs
    return {alias: inputs[alias] for alias in inputs} | {alias: one.proto for alias, one in request.attachments.items()}


def _size_bytes(request: TensorMessage) -> int:
    return int(request.message.ByteSize()) + sum(len(one.values) for one in request.attachments.values())
