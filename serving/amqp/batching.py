"""Joins the Predict calls of several messages into one, and splits the prediction again.

`serving.runtimes.batching` does this within a model server; here it saves calls to a model server elsewhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from savedmodel_bakery.serving.amqp.codec import Predict, Prediction
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.attachments import field_numbers
from savedmodel_bakery.wire.messages import TensorMap
from savedmodel_bakery.wire.status import Code, StatusError

_MAX_BYTES = 64 << 20  # joining saves nothing for larger requests
_JOINED_FIELDS = {
    schema.PredictRequest.DESCRIPTOR.fields_by_name[name].number for name in ("model_spec", "inputs", "output_filter")
}


def group(calls: Mapping[int, Predict]) -> list[dict[int, Predict]]:
    """Return the groups of two or more calls that can be joined, with decoded inputs.

    They have the same model, version, signature and output filter, and inputs that differ only in their number of rows.
    A protobuf message is not joined if it has further fields, such as `client_id`, or leaves out most of its values.
    """
    groups: dict[Hashable, dict[int, Predict]] = {}
    for index, call in calls.items():
        try:
            if not _is_joinable(call):
                continue
            decoded = call._replace(inputs=dict(call.inputs))
        except StatusError:
            continue  # the backend reports it
        key = _key(decoded)
        if key is not None:
            groups.setdefault(key, {})[index] = decoded
    return [members for members in groups.values() if len(members) > 1]


def join(calls: Sequence[Predict]) -> Predict:
    """Concatenate the inputs of a group."""
    first = calls[0]
    inputs = {
        alias: tensor._replace(array=np.concatenate([call.inputs[alias].array for call in calls]))
        for alias, tensor in first.inputs.items()
    }
    return first._replace(inputs=inputs, content=None)


def split(prediction: Prediction, calls: Sequence[Predict]) -> list[Prediction]:
    """Split the prediction for a joined group into one per request.

    Raises:
        StatusError: FAILED_PRECONDITION if an output does not have one row per input row.
    """
    ends = np.cumsum([_row_count(call) for call in calls]).tolist()
    outputs = dict(prediction.outputs)
    for alias, tensor in outputs.items():
        if tensor.array.ndim == 0 or len(tensor.array) != ends[-1]:
            raise StatusError(Code.FAILED_PRECONDITION, f'output "{alias}" does not have one row per input row')
    return [
        prediction._replace(
            outputs={alias: tensor._replace(array=tensor.array[start:end]) for alias, tensor in outputs.items()}
        )
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def _is_joinable(call: Predict) -> bool:
    """Return whether a joined call has all fields of the message, and decoding its inputs takes little memory.

    Every value in a message takes at least one byte. A message that declares more values than it has bytes repeats the
    last one, possibly very often.
    """
    if call.content is None or not isinstance(call.inputs, TensorMap):
        return True  # JSON and images
    return field_numbers(call.content) <= _JOINED_FIELDS and call.inputs.value_count() <= len(call.content)


def _key(call: Predict) -> Hashable:
    """Return a value that is equal for calls that can be joined; None for a call that cannot."""
    tensors = call.inputs
    if not tensors or any(tensor.shape is not None or tensor.array.ndim == 0 for tensor in tensors.values()):
        return None
    if len({len(tensor.array) for tensor in tensors.values()}) > 1 or _row_count(call) < 1:
        return None
    if sum(tensor.array.nbytes for tensor in tensors.values()) > _MAX_BYTES:
        return None
    inputs = tuple((alias, tensors[alias].dtype, tensors[alias].array.shape[1:]) for alias in sorted(tensors))
    return call.spec, tuple(call.output_filter), inputs


def _row_count(call: Predict) -> int:
    return len(next(iter(call.inputs.values())).array)
