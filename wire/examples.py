"""Examples as tf.Example, for gRPC (tensorflow/core/example/example.proto)."""

from __future__ import annotations

from typing import Any

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.features import Example, feature_values

_FIELDS = {bytes: "bytes_list", int: "int64_list", float: "float_list"}


def encode_example(example: Example) -> Any:
    """The tf.Example with these features.

    Raises:
        StatusError: INVALID_ARGUMENT for values that no feature holds.
    """
    message = schema.Example()
    for name, feature in example.items():
        values = feature_values(name, feature)
        getattr(message.features.feature[name], _FIELDS[type(values[0])]).value.extend(values)
    return message
