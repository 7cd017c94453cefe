"""A registry without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.models.registry import Registry, State
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import dtypes, schema, tensors
from savedmodel_bakery.wire.tensors import Tensor


def _signature(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Any:
    """A SignatureDef whose tensors have any shape: element types by alias."""
    made = schema.SignatureDef(method_name="tensorflow/serving/predict")
    for infos, types in ((made.inputs, inputs), (made.outputs, outputs)):
        for alias, name in types.items():
            infos[alias].name, infos[alias].dtype = f"{alias}:0", dtypes.BY_NAME[name].number
            infos[alias].tensor_shape.unknown_rank = True
    return made


def _with_shapes(signature: Any, **shapes: list[int]) -> Any:
    """The signature with inputs of these shapes, whose sizes may be -1."""
    for alias, sizes in shapes.items():
        signature.inputs[alias].tensor_shape.Clear()
        for size in sizes:
            signature.inputs[alias].tensor_shape.dim.add(size=size)
    return signature


class _Adding:
    """Adds its inputs."""

    def __init__(self) -> None:
        self.signatures: dict[str, Any] = {
            "serving_default": _signature({"x": "float", "k": "float"}, {"y": "float"}),
            "complex": _signature({"x": "float"}, {"y": "float", "z": "complex64"}),
            "quantised": _signature({"x": "qint8"}, {"y": "float"}),
            "text": _signature({"s": "string"}, {"y": "float"}),
            "pixels": _with_shapes(_signature({"x": "float"}, {"y": "float"}), x=[-1, 2, 3]),
            "images": _with_shapes(_signature({"s": "string"}, {"y": "string"}), s=[-1]),
            "scalar": _with_shapes(_signature({"x": "float"}, {"y": "float"}), x=[]),
        }
        self.signatures["serving_default"].defaults["k"].CopyFrom(tensors.encode_tensor(np.float32([7])))

    def run(self, feeds: Mapping[str, Tensor], fetches: Sequence[str], context: RequestContext) -> list[Tensor]:  # noqa: ARG002
        if "s:0" in feeds:
            return [feeds["s:0"]]
        total = sum((tensor.array for tensor in feeds.values()), np.float32(0))
        return [Tensor(total, dtypes.BY_NAME["float"]) for _ in fetches]

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def servable() -> Servable:
    return Servable("m", 3, _Adding())


@pytest.fixture
def registry(servable: Servable) -> Registry:
    """Has version 3 of the model m, which adds its inputs x and k."""
    registry = Registry()
    registry.update(registry.add("m", 3, Path("/m/3")), State.AVAILABLE, servable=servable)
    return registry
