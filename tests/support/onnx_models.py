"""Writes tiny ONNX models whose outputs are easy to calculate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx import TensorProto, checker, helper, save_model

_OPSET = 13
_IR_VERSION = 8  # of that opset's time; onnxruntime doesn't load the newest

Shape = Sequence[int | str]
Node = tuple[str, list[str], str, Mapping[str, object]]  # an operation, its inputs, its output and its attributes


def write(
    path: Path,
    nodes: Sequence[Node],
    inputs: Mapping[str, Shape],
    outputs: Mapping[str, Shape],
    *,
    dtype: int = TensorProto.FLOAT,
) -> Path:
    """Write a model whose inputs and outputs have one dtype."""
    graph = helper.make_graph(
        [helper.make_node(name, taken, [made], **attributes) for name, taken, made, attributes in nodes],
        "graph",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in outputs.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    checker.check_model(model)
    save_model(model, path)
    return path


def means(
    path: Path,
    *,
    layout: str = "NCHW",
    size: int | str = 8,
    batch: int | str = "batch",
    order: Sequence[int] = (0, 1, 2),
    dtype: int = TensorProto.FLOAT,
) -> Path:
    """Write a model that returns the softmax of the mean of each channel, like `tiny:build` of `tiny_models`.

    Args:
        path: of the file.
        layout: of its input.
        size: of the sides of its input; text is any size.
        batch: the number of images.
        order: of the channels in its output; any but the default is a faulty conversion.
        dtype: of its tensors.
    """
    is_nchw = layout == "NCHW"
    nodes: list[Node] = [
        ("ReduceMean", ["image"], "means", {"axes": [2, 3] if is_nchw else [1, 2], "keepdims": 0}),
        ("Constant", [], "order", {"value_ints": list(order)}),
        ("Gather", ["means", "order"], "logits", {"axis": 1}),
        ("Softmax", ["logits"], "scores", {"axis": 1}),
    ]
    shape = [batch, 3, size, size] if is_nchw else [batch, size, size, 3]
    return write(path, nodes, {"image": shape}, {"scores": [batch, 3]}, dtype=dtype)
