"""Parts of graphs: equal constants of a function become one, and the function returns the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.graph_functions import merge_constants
from savedmodel_bakery.wire import schema


def test_equal_constants_are_merged(tmp_path: Path) -> None:
    """Also those of branches, each in a function of its own, and one that is returned or only waited for."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)], autograph=False)
    def compute(number: tf.Tensor) -> list[tf.Tensor]:
        branch = tf.cond(number > 2.0, lambda: number * 2.0 + 2.0, lambda: number - 2.0)
        with tf.control_dependencies([tf.constant(2.0)]):
            waited = tf.identity(branch)
        return [waited * 2.0, tf.constant(2.0), tf.constant(2)]

    module = tf.Module()
    module.compute = compute
    tf.saved_model.save(module, str(tmp_path))
    graph = tmp_path / "saved_model.pb"
    saved_model = schema.SavedModel.FromString(graph.read_bytes())
    functions = saved_model.meta_graphs[0].graph_def.library.function
    before = sum(node.op == "Const" for function in functions for node in function.node_def)
    merge_constants(saved_model.meta_graphs[0].graph_def)
    values = [
        [str(node).replace(node.name, "") for node in function.node_def if node.op == "Const"] for function in functions
    ]
    assert sum(map(len, values)) < before
    assert [len(set(of_function)) for of_function in values] == list(map(len, values))
    graph.write_bytes(saved_model.SerializeToString())
    loaded = tf.saved_model.load(str(tmp_path))
    for number, expected in ((3.0, [16, 2, 2]), (1.0, [-2, 2, 2])):
        np.testing.assert_array_equal(expected, loaded.compute(tf.constant(number)))
