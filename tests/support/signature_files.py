"""Writes SavedModels that have signatures and no graph, for code that reads signatures only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from savedmodel_bakery.wire import dtypes, schema


def write(version: Path, inputs: Sequence[str], outputs: Sequence[str], signature: str = "serving_default") -> Path:
    """Write a version with one signature, or add one; tensors are such as `a: float [?, 4]` or `s: string unknown`."""
    file = version / "saved_model.pb"
    saved = schema.SavedModel()
    if file.is_file():
        saved.ParseFromString(file.read_bytes())
    else:
        saved.meta_graphs.add().meta_info_def.tags.append("serve")
    definition = saved.meta_graphs[0].signature_def[signature]
    definition.method_name = "tensorflow/serving/predict"
    _fill(definition.inputs, inputs)
    _fill(definition.outputs, outputs)
    version.mkdir(parents=True, exist_ok=True)
    file.write_bytes(saved.SerializeToString())
    return version


def _fill(infos: Mapping[str, object], tensors: Sequence[str]) -> None:
    for text in tensors:
        match = re.fullmatch(r"(\w+): (\w+) (?:\[(.*)\]|unknown)", text)
        assert match is not None, text
        alias, dtype, sizes = match.groups()
        infos[alias].name, infos[alias].dtype = f"{alias}:0", dtypes.BY_NAME[dtype].number
        infos[alias].tensor_shape.unknown_rank = sizes is None
        for size in filter(None, (sizes or "").split(", ")):
            infos[alias].tensor_shape.dim.add(size=-1 if size == "?" else int(size))
