"""Joins the Predict calls of several messages into one, and splits the prediction again.

`serving.runtimes.batching` does this within a model server; here it saves calls to a model server elsewhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.attachments import TensorMessage, parse_message
from savedmodel_bakery.wire.encoding import field_numbers
from savedmodel_bakery.wire.messages import ModelSpec, TensorMap, parse_predict_request, read_spec, write_spec
from savedmodel_bakery.wire.responses import make_predict_response
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor

_MAX_BYTES = 64 << 20  # joining saves nothing for larger requests
_JOINED_FIELDS = {
    schema.PredictRequest.DESCRIPTOR.fields_by_name[name].number for name in ("model_spec", "inputs", "output_filter")
}


class JoinableRequest(NamedTuple):
    """A PredictRequest with decoded inputs."""

    spec: ModelSpec  # the model, version and signature to run
    inputs: dict[str, Tensor]  # by alias; all have the same number of rows
    output_filter: Sequence[str]  # aliases of the outputs to return; empty for all


def group(requests: Mapping[int, bytes]) -> list[dict[int, JoinableRequest]]:
    """Return the groups of two or more serialized PredictRequests that can be joined.

    They have the same model, version, signature and output filter, and inputs that differ only in their number of rows.
    A request is not joined if it has further fields, such as `client_id`, or leaves out most of its values.
    """
    groups: dict[Hashable, dict[int, JoinableRequest]] = {}
    for index, content in requests.items():
        try:
            request = _read_joinable(content)
        except StatusError:
            continue  # the backend reports it
        if request is not None:
            groups.setdefault(_key(request), {})[index] = request
    return [members for members in groups.values() if len(members) > 1]


def join(requests: Sequence[JoinableRequest]) -> bytes:
    """Return the serialized request with the inputs of a group."""
    spec, inputs, output_filter = requests[0]
    joined = TensorMessage(schema.PredictRequest(output_filter=output_filter), "inputs")
    write_spec(joined.message.model_spec, spec)
    for alias, tensor in inputs.items():
        array = np.concatenate([request.inputs[alias].array for request in requests])
        joined.add(alias, array, packed=True, dtype=tensor.dtype)
    return joined.SerializeToString()


def split(content: bytes, requests: Sequence[JoinableRequest]) -> list[bytes]:
    """Split the response to a joined request; FAILED_PRECONDITION if an output does not have one row per input row."""
    response = parse_message(schema.PredictResponse, "outputs", content)
    spec = read_spec(response.message.model_spec)
    outputs = dict(TensorMap(response.message.outputs, response.attachments))
    ends = np.cumsum([_row_count(request.inputs) for request in requests]).tolist()
    for alias, tensor in outputs.items():
        if tensor.array.ndim == 0 or len(tensor.array) != ends[-1]:
            raise StatusError(Code.FAILED_PRECONDITION, f'output "{alias}" does not have one row per input row')
    contents = []
    for start, end in pairwise([0, *ends]):
        rows = {alias: tensor._replace(array=tensor.array[start:end]) for alias, tensor in outputs.items()}
        contents.append(make_predict_response(spec, rows, packed=False).SerializeToString())
    return contents


def _read_joinable(content: bytes) -> JoinableRequest | None:
    """Return a request with decoded inputs; None if it cannot be joined.

    Every value in a message takes at least one byte. A message that declares more values than it has bytes repeats the
    last one, possibly very often.
    """
    if not field_numbers(content) <= _JOINED_FIELDS:
        return None
    spec, encoded, output_filter = parse_predict_request(content)
    if spec is None or encoded.value_count() > len(content):
        return None
    inputs = dict(encoded)
    tensors = inputs.values()
    if not tensors or any(tensor.shape is not None or tensor.array.ndim == 0 for tensor in tensors):
        return None
    if len({len(tensor.array) for tensor in tensors}) > 1 or _row_count(inputs) < 1:
        return None
    if sum(tensor.array.nbytes for tensor in tensors) > _MAX_BYTES:
        return None
    return JoinableRequest(spec, inputs, output_filter)


def _key(request: JoinableRequest) -> Hashable:
    """Return a value that is equal for requests that can be joined."""
    inputs = request.inputs
    shapes = tuple((alias, inputs[alias].dtype, inputs[alias].array.shape[1:]) for alias in sorted(inputs))
    return request.spec, tuple(request.output_filter), shapes


def _row_count(inputs: Mapping[str, Tensor]) -> int:
    return len(next(iter(inputs.values())).array)
