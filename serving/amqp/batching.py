"""Joins the Predict calls of several messages into one, and splits the prediction again.

`serving.runtimes.batching` does this within a model server; here it saves calls to a model server elsewhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.encoding import field_numbers
from savedmodel_bakery.wire.messages import Prediction, PredictRequest, TensorMap, parse_predict_request
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor

_MAX_BYTES = 64 << 20  # joining saves nothing for larger requests
_JOINED_FIELDS = {
    schema.PredictRequest.DESCRIPTOR.fields_by_name[name].number for name in ("model_spec", "inputs", "output_filter")
}


def group(requests: Mapping[int, bytes | PredictRequest]) -> list[dict[int, PredictRequest]]:
    """Return the groups of two or more PredictRequests, some of them serialized, that can be joined.

    They have the same model, version, signature and output filter, and inputs that differ only in their number of rows.
    A request is not joined if it has further fields, such as `client_id`, or leaves out most of its values.
    """
    groups: dict[Hashable, dict[int, PredictRequest]] = {}
    for index, request in requests.items():
        try:
            read = _read(request) if isinstance(request, bytes) else request
        except StatusError:
            continue  # the backend reports it
        if read is not None and _is_joinable(read.inputs):
            groups.setdefault(_key(read), {})[index] = read
    return [members for members in groups.values() if len(members) > 1]


def join(requests: Sequence[PredictRequest]) -> PredictRequest:
    """Return the request with the inputs of a group."""
    first = requests[0]
    inputs = {
        alias: tensor._replace(array=np.concatenate([request.inputs[alias].array for request in requests]))
        for alias, tensor in first.inputs.items()
    }
    return first._replace(inputs=inputs)


def split(prediction: Prediction, requests: Sequence[PredictRequest]) -> list[Prediction]:
    """Split the answer to a joined request; FAILED_PRECONDITION if an output does not have one row per input row."""
    spec, outputs = prediction
    ends = np.cumsum([_row_count(request.inputs) for request in requests]).tolist()
    for alias, tensor in outputs.items():
        if tensor.array.ndim == 0 or len(tensor.array) != ends[-1]:
            raise StatusError(Code.FAILED_PRECONDITION, f'output "{alias}" does not have one row per input row')
    return [
        Prediction(spec, {alias: tensor._replace(array=tensor.array[start:end]) for alias, tensor in outputs.items()})
        for start, end in pairwise([0, *ends])
    ]


def _read(content: bytes) -> PredictRequest | None:
    """Return a request with decoded inputs; None if it cannot be joined.

    Every value in a message takes at least one byte. A message that declares more values than it has bytes repeats the
    last one, possibly very often.
    """
    if not field_numbers(content) <= _JOINED_FIELDS:
        return None
    request = parse_predict_request(content)
    assert isinstance(request.inputs, TensorMap)
    if request.spec is None or request.inputs.value_count() > len(content):
        return None
    return request._replace(inputs=dict(request.inputs))


def _is_joinable(inputs: Mapping[str, Tensor]) -> bool:
    """Return whether all inputs have the same number of rows, and not too many values."""
    tensors = inputs.values()
    if not tensors or any(tensor.shape is not None or tensor.array.ndim == 0 for tensor in tensors):
        return False
    if len({len(tensor.array) for tensor in tensors}) > 1 or _row_count(inputs) < 1:
        return False
    return sum(tensor.array.nbytes for tensor in tensors) <= _MAX_BYTES


def _key(request: PredictRequest) -> Hashable:
    """Return a value that is equal for requests that can be joined."""
    inputs = request.inputs
    shapes = tuple((alias, inputs[alias].dtype, inputs[alias].array.shape[1:]) for alias in sorted(inputs))
    return request.spec, tuple(request.output_filter), shapes


def _row_count(inputs: Mapping[str, Tensor]) -> int:
    return len(next(iter(inputs.values())).array)
