"""Baked models of all tasks without TensorFlow: they read each photo whose bytes are not `bad`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.models.registry import Registry, State
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import dtypes, schema
from savedmodel_bakery.wire.tensors import Tensor

ANSWERS: dict[str, dict[str, Any]] = {
    "classify": {"labels": ["<b>cat", "dog"], "scores": [0.75, 0.25], "class_ids": [4, 2]},
    "multilabel": {"labels": ["cat", ""], "scores": [0.75, 0.0], "count": 1},
    "embed": {"embedding": [0.5, -1.0]},
    "detect": {"boxes": [[1.0, 2.0, 30.0, 14.0], [0.0] * 4], "labels": ["cat", ""], "scores": [0.75, 0.0], "count": 1},
    "masks": {
        "boxes": [[1.0, 1.0, 3.0, 3.0]],
        "labels": ["cat"],
        "scores": [0.75],
        "count": 1,
        "mask_counts": ["42102"],
        "mask_size": [3, 4],
    },
    "segment": {"map_png_bytes": b"PNG", "shares": [0.25, 0.75], "labels": ["road", "tree"]},
    "regress": {"value": 1.5},
    "broken": {"value": float("nan")},
    "broken boxes": {
        "boxes": [[float("nan"), 2.0, float("inf"), 14.0]],
        "labels": ["cat"],
        "scores": [float("nan")],
        "count": 1,
    },
}
"""The outputs for a photo, by model."""

_DTYPES = {"U": "string", "S": "string", "f": "float", "i": "int32"}


class _Baked:
    """Returns the same outputs for each photo."""

    def __init__(self, name: str) -> None:
        self._columns = {alias: np.array(answer) for alias, answer in ANSWERS[name].items()}
        types = {alias: _DTYPES[column.dtype.kind] for alias, column in self._columns.items()}
        definition = _definition({"image": "string"}, {**types, "ok": "bool", "error": "string"})
        self.signatures: dict[str, Any] = {"serving_default": definition}
        if name == "classify":
            self.signatures = {
                "serving_default": _definition({"image": "string"}, {"output_0": "string"}),
                "top_k": definition,
            }

    def run(self, feeds: Mapping[str, Tensor], fetches: Sequence[str], context: RequestContext) -> list[Tensor]:  # noqa: ARG002
        [photos] = [tensor.array for tensor in feeds.values()]
        ok = photos != b"bad"
        outputs = {
            "ok": Tensor(ok, dtypes.BY_NAME["bool"]),
            "error": Tensor(np.where(ok, b"", b"damaged").astype(object), dtypes.STRING),
        }
        for alias, column in self._columns.items():
            name = _DTYPES[column.dtype.kind]
            rows = np.stack([column] * len(photos)).astype(dtypes.BY_NAME[name].numpy)
            if name == "string":
                rows = np.vectorize(lambda text: text if isinstance(text, bytes) else text.encode(), otypes=[object])(
                    rows
                )
            outputs[alias] = Tensor(rows, dtypes.BY_NAME[name])
        return [outputs[name.removesuffix(":0")] for name in fetches]

    def close(self) -> None:
        """Do nothing."""


class _Other:
    """Takes numbers, although its outputs are those of task regress."""

    def __init__(self) -> None:
        self.signatures = {
            "serving_default": _definition({"x": "float"}, {"y": "float", "ok": "bool", "error": "string"})
        }

    def close(self) -> None:
        """Do nothing."""


def _definition(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Any:
    made = schema.SignatureDef(method_name="tensorflow/serving/predict")
    for infos, types in ((made.inputs, inputs), (made.outputs, outputs)):
        for alias, name in types.items():
            infos[alias].name, infos[alias].dtype = f"{alias}:0", dtypes.BY_NAME[name].number
            infos[alias].tensor_shape.dim.add(size=-1)
    return made


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """Has version 3 of a model per task, named as the task, and the model `other`."""
    registry = Registry()
    runtimes: dict[str, Any] = {name: _Baked(name) for name in ANSWERS} | {"other": _Other()}
    for name, runtime in runtimes.items():
        version = registry.add(name, 3, Path(f"/{name}/3"))
        registry.update(version, State.AVAILABLE, servable=Servable(name, 3, runtime))
    registry.set_labels({"classify": {"stable": 3}})
    return registry
