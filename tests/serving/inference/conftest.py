"""A servable without TensorFlow: half_plus_two, computed by numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import dtypes, schema, tensors
from savedmodel_bakery.wire.tensors import Tensor

FLOAT = dtypes.BY_NAME["float"]


class FakeRuntime:
    """Computes y = x / 2 + 2 and y2 = x / 2 + 3 from floats; of serialized examples, the length is x.

    Attributes:
        runs: feeds, fetches and context of each run.
        outputs: results to return instead, by tensor name.
    """

    def __init__(self) -> None:
        self.runs: list[tuple[Mapping[str, Tensor], list[str], RequestContext]] = []
        self.outputs: dict[str, Tensor] = {}
        self.signatures: dict[str, Any] = {
            "serving_default": signature("tensorflow/serving/predict", {"x": "x:0"}, {"y": "y:0", "y2": "y2:0"}),
            "defaults": signature("tensorflow/serving/predict", {"x": "x:0", "k": "k:0"}, {"y": "y:0"}),
            "shared": signature("tensorflow/serving/predict", {"a": "x:0", "b": "x:0"}, {"y": "y:0"}),
            "custom": signature("my/method", {"x": "x:0"}, {"y": "y:0"}),
            "classify": signature(
                "tensorflow/serving/classify", {"inputs": "ex:0"}, {"classes": "c:0", "scores": "s:0"}
            ),
            "regress": signature("tensorflow/serving/regress", {"inputs": "ex:0"}, {"outputs": "r:0"}),
        }
        self.signatures["defaults"].defaults["k"].CopyFrom(tensors.encode_tensor(np.float32([7])))

    def run(self, feeds: Mapping[str, Tensor], fetches: Sequence[str], context: RequestContext) -> list[Tensor]:
        self.runs.append((feeds, list(fetches), context))
        if "ex:0" in feeds:
            x = np.array([len(example) for example in feeds["ex:0"].array], np.float32)
        else:
            x = feeds["x:0"].array
        results = {
            "y:0": Tensor(x / 2 + 2, FLOAT),
            "y2:0": Tensor(x / 2 + 3, FLOAT),
            "r:0": Tensor((x / 2 + 2).reshape(-1, 1), FLOAT),
            "s:0": Tensor(np.stack([x, x + 1], axis=-1), FLOAT),
            "c:0": Tensor(np.array([[b"a", b"b"]] * x.size, object), dtypes.STRING),
            **self.outputs,
        }
        return [results[name] for name in fetches]

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


def signature(method_name: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Any:
    """A SignatureDef of float inputs and outputs: tensor names by alias."""
    made = schema.SignatureDef(method_name=method_name)
    for infos, names in ((made.inputs, inputs), (made.outputs, outputs)):
        for alias, name in names.items():
            infos[alias].name, infos[alias].dtype = name, FLOAT.number
    return made


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def servable(runtime: FakeRuntime) -> Servable:
    return Servable("half_plus_two", 3, runtime)
