"""The SavedModels used by the recorded cases in tests/golden; recorded error texts contain their node names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import model_makers
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

tf1 = tf.compat.v1
Tensors = Mapping[str, tf.Tensor]
Signatures = dict[str, Any]

PREDICT, CLASSIFY, REGRESS = (f"tensorflow/serving/{method}" for method in ("predict", "classify", "regress"))


def make_all(root: Path) -> None:
    """Write every model below `root`, as NAME/VERSION."""
    builders: dict[str, Callable[[], Signatures]] = {
        "zoo": zoo,
        "multi": multi,
        "strings": strings,
        "examples": examples,
        "methods": methods,
    }
    for name, build in builders.items():
        _save(root / name / "1", build)
    for number in (1, 2, 3):
        _save(root / "versions" / str(number), lambda number=number: times(number))
    for name, records in _warmups().items():
        model_makers.write_warmup(_save(root / name / "1", lambda: times(1)), records)
    _save(root / "notag" / "1", lambda: times(1), tags=("train",))
    _save(root / "saved_model_half_plus_two_cpu" / "00000123", half_plus_two)
    for number in (123, 124):
        _save(root / "saved_model_half_plus_two_2_versions" / f"{number:08}", half_plus_two)
    half_plus_two_tf2(root / "saved_model_half_plus_two_tf2_cpu" / "00000123")
    session_bundle = root / "bad_half_plus_two" / "00000123"
    session_bundle.mkdir(parents=True)
    (session_bundle / "export.meta").write_bytes(b"TensorFlow 1 session bundles had a file of this name")


def zoo() -> Signatures:
    """One signature per dtype, named after it, that returns x of any shape as y."""
    plain = "float double half bfloat16 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool string"
    other = "complex64 complex128 qint8 quint8 qint32 qint16 quint16 float8_e4m3fn float8_e5m2 int4 uint4"
    numpy_names = {"float": "float32", "double": "float64"}
    signatures = {}
    for name in f"{plain} {other}".split():
        dtype = tf.dtypes.as_dtype(numpy_names.get(name, name))
        x = tf1.placeholder(dtype, None, f"x_{dtype.name}")
        signatures[name] = _signature({"x": x}, {"y": tf.identity(x, f"y_{dtype.name}")})
    return signatures


def multi() -> Signatures:
    """Sums of one and two inputs, defaults, unusual output shapes, errors, and endless and incorrect signatures."""
    x = tf1.placeholder(tf.float32, [None], "x")
    a, b = (tf1.placeholder(tf.float32, [None, 2], name) for name in "ab")
    k = tf1.placeholder(tf.float32, [], "k")
    n = tf1.placeholder(tf.int32, [], "n")
    m = tf1.placeholder(tf.int32, [None], "m")
    g = tf1.placeholder(tf.float32, None, "g")
    never = tf1.FIFOQueue(1, [tf.float32], [[]], name="never")
    spin = tf.while_loop(
        lambda i, _: i < n, lambda i, v: (i + 1, v + 1.0), (tf.constant(0), tf.constant(0.0)), parallel_iterations=1
    )[1]
    signatures = {
        "serving_default": _signature({"x": x}, {"y": tf.add(x * 0.5, 2.0, "y")}),
        "two": _signature({"a": a, "b": b}, {"sum": tf.add(a, b, "sum"), "diff": tf.subtract(a, b, "diff")}),
        "defaults": _signature({"x": x, "k": k}, {"y": tf.multiply(x, k, "scaled")}),
        "nodefaults": _signature({"x": x, "k": k}, {"y": tf.multiply(x, k, "scaled2")}),
        "noinput": _signature({}, {"c": tf.constant([1.5, 2.5], name="c")}),
        "unequal": _signature(
            {"x": x},
            {"p": tf.constant([[1.0], [2.0]], name="p"), "q": tf.constant([1.0, 2.0, 3.0], name="q")},
        ),
        "scalar_out": _signature({"x": x}, {"s": tf.reduce_sum(x, name="s")}),
        "any": _signature({"g": g}, {"shape": tf.shape(g, name="shape_of"), "h": tf.identity(g, "h")}),
        "boom": _signature({"m": m}, {"d": tf.math.floordiv(tf.constant(1), m, "d")}),
        "slow": _signature({"n": n}, {"v": tf.identity(spin, "v")}),
        "block": _signature({"x": x}, {"z": tf.identity(never.dequeue(), "z")}),
        "odd_method": _signature({"x": x}, {"y": tf.identity(x, "y2")}, "my/own/method"),
        "long_error": _signature({"g": g}, {"r": tf.reshape(g, [2], name="l" * 1500)}),
        "specials": _signature({"x": x}, _special_numbers()),
        "ints": _signature({"x": x}, _extreme_integers()),
        "missing_tensor": _signature({"x": x}, {"y": tf.identity(x, "y3")}),
        "lies": _signature({"x": x}, {"y": tf.cast(x, tf.int32, name="y4")}),
    }
    signatures["defaults"].defaults["k"].CopyFrom(tf.make_tensor_proto(0.5, tf.float32))
    signatures["missing_tensor"].outputs["y"].name = "nosuch:0"
    signatures["lies"].outputs["y"].dtype = tf.float32.as_datatype_enum
    signatures["lies"].inputs["x"].tensor_shape.dim[0].size = 7
    return signatures


def _special_numbers() -> Tensors:
    common = [float("nan"), float("inf"), -float("inf"), -0.0, 0.1, 1 / 3, 9e6]
    return {
        "f": tf.constant([*common, 999999.0, 1e-45, 3.4028235e38, 123456.7], name="f"),
        "d": tf.constant([*common, 5e-324, 1.7976931348623157e308, 123456.7, 1e22], tf.float64, name="dd"),
    }


def _extreme_integers() -> Tensors:
    rows = {
        "i64": np.array([2**63 - 1, -(2**63)]),
        "u64": np.array([2**64 - 1, 0], np.uint64),
        "u32": np.array([2**32 - 1, 0], np.uint32),
        "i8": np.array([-128, 127], np.int8),
        "u8": np.array([0, 255], np.uint8),
        "i16": np.array([-32768, 32767], np.int16),
        "u16": np.array([0, 65535], np.uint16),
        "t": np.array([True, False]),
    }
    return {alias: tf.constant(values, name=alias) for alias, values in rows.items()}


def strings() -> Signatures:
    """String inputs and outputs, with and without the suffix that selects base64."""
    s, raw = tf1.placeholder(tf.string, None, "s"), tf1.placeholder(tf.string, [None], "raw")
    binary = [b"\xff\xfe", b'\x00a\n"\\/', "é€😀".encode()]
    return {
        "serving_default": _signature({"s": s}, {"t": tf.identity(s, "t")}),
        "bytes": _signature({"s": s}, {"t_bytes": tf.identity(s, "tb")}),
        "both": _signature({"s": s, "raw_bytes": raw}, {"t": tf.identity(s, "t1"), "u_bytes": tf.identity(raw, "u1")}),
        "binary": _signature({"s": s}, {"bin": tf.constant(binary, name="bin")}),
        "binary_bytes": _signature({"s": s}, {"bin_bytes": tf.constant([b"\xff\xfe", b"", b"\x00a"], name="bin2")}),
        "len": _signature({"s": s}, {"n": tf.strings.length(s, name="n")}),
    }


def times(number: int) -> Signatures:
    """X times a number, under two names."""
    x = tf1.placeholder(tf.float32, [None], "x")
    keys = ("serving_default", f"only{number}")
    return {key: _signature({"x": x}, {"y": tf.multiply(x, float(number), "y")}) for key in keys}


def examples() -> Signatures:
    """Signatures for Classify and Regress, valid and invalid in every way."""
    e = tf1.placeholder(tf.string, [None], "tf_example")
    parsed = tf.io.parse_example(
        e,
        {
            "x": tf.io.FixedLenFeature([1], tf.float32),
            "k": tf.io.FixedLenFeature([1], tf.int64, default_value=[7]),
            "b": tf.io.FixedLenFeature([1], tf.string, default_value=["none"]),
        },
    )
    x, k, b = parsed["x"], parsed["k"], parsed["b"]
    count = tf.shape(e)[0]
    labels = tf.concat([b, tf.strings.as_string(k)], 1, name="labels")
    scores = tf.concat([x, x * 2.0], 1, name="scores")
    y = tf.add(x * 0.5, 2.0, "y")
    flat = tf.squeeze(y, 1, name="flat")
    integers = tf.cast(scores, tf.int32, name="ints")
    classify: dict[str, Tensors] = {
        "serving_default": {"classes": labels, "scores": scores},
        "cls_scores": {"scores": scores},
        "cls_classes": {"classes": labels},
        "cls_odd_name": {"klass": labels},
        "cls_three": {"classes": labels, "scores": scores, "more": y},
        "cls_extra": {"scores": scores, "more": y},
        "cls_vector": {"scores": flat},
        "cls_int_scores": {"scores": integers},
        "cls_int_classes": {"classes": integers},
        "cls_rows": {"scores": tf.identity(tf.zeros([5, 2]), "five")},
        "cls_width": {"classes": labels, "scores": tf.identity(x, "narrow")},
    }
    regress: dict[str, Tensors] = {
        "reg": {"outputs": y},
        "reg_flat": {"outputs": flat},
        "reg_odd_name": {"y": y},
        "reg_two": {"outputs": y, "more": flat},
        "reg_wide": {"outputs": scores},
        "reg_int": {"outputs": tf.identity(tf.cast(y, tf.int32), "iy")},
        "reg_rows": {"outputs": tf.identity(tf.zeros([5]), "five1")},
        "reg_scalar": {"outputs": tf.identity(tf.reduce_sum(y), "total")},
    }
    shown = {"raw_bytes": tf.identity(e, "raw"), "n": tf.fill([count], count, name="cnt")}
    return {
        **{key: _signature({"inputs": e}, outputs, CLASSIFY) for key, outputs in classify.items()},
        **{key: _signature({"inputs": e}, outputs, REGRESS) for key, outputs in regress.items()},
        "cls_predict": _signature({"inputs": e}, {"classes": labels, "scores": scores}),
        "cls_odd_input": _signature({"examples": e}, {"scores": scores}, CLASSIFY),
        "cls_two_inputs": _signature({"inputs": e, "other": e}, {"scores": scores}, CLASSIFY),
        "reg_predict": _signature({"inputs": e}, {"outputs": y}),
        "reg_odd_input": _signature({"examples": e}, {"outputs": y}, REGRESS),
        "show": _signature({"inputs": e}, shown),
    }


def methods() -> Signatures:
    """The same graph under every method name."""
    x = tf1.placeholder(tf.float32, [None], "x")
    y = tf.add(x, 1.0, "y")
    return {
        "serving_default": _signature({"inputs": x}, {"outputs": y}),
        "classify": _signature({"inputs": x}, {"scores": y}, CLASSIFY),
        "regress": _signature({"inputs": x}, {"outputs": y}, REGRESS),
        "empty": _signature({"inputs": x}, {"outputs": y}, ""),
        "own": _signature({"inputs": x}, {"outputs": y}, "own/method"),
    }


def half_plus_two() -> Signatures:
    """X / 2 + 2 for a float or a feature of tf.Examples; x / 2 + 3 under other names."""
    e = tf1.placeholder(tf.string, None, "tf_example")
    features = {
        "x": tf.io.FixedLenFeature([1], tf.float32),
        "x2": tf.io.FixedLenFeature([1], tf.float32, default_value=[0.0]),
    }
    parsed = tf1.io.parse_example(e, features)
    x, x2 = tf.identity(parsed["x"], "x"), tf.identity(parsed["x2"], "x2")
    for tensor in (x, x2):
        tensor.set_shape([None, 1])
    a, b, c = (tf1.get_variable(name, initializer=value) for name, value in (("a", 0.5), ("b", 2.0), ("c", 3.0)))
    y, y2, y3 = tf.identity(a * x + b, "y"), tf.identity(a * x + c, "y2"), tf.identity(a * x2 + c, "y3")
    return {
        "serving_default": _signature({"x": x}, {"y": y}),
        "classify_x_to_y": _signature({"inputs": e}, {"scores": y}, CLASSIFY),
        "regress_x_to_y": _signature({"inputs": e}, {"outputs": y}, REGRESS),
        "regress_x_to_y2": _signature({"inputs": e}, {"outputs": y2}, REGRESS),
        "regress_x2_to_y3": _signature({"inputs": x2}, {"outputs": y3}, REGRESS),
    }


def half_plus_two_tf2(path: Path) -> None:
    """The same model made with TensorFlow 2, where all signatures have the method name of Predict."""

    class HalfPlusTwo(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = tf.Variable(0.5), tf.Variable(2.0), tf.Variable(3.0)

        def of_examples(self, serialized: tf.Tensor, added: tf.Variable) -> tf.Tensor:
            return self.a * tf.io.parse_example(serialized, {"x": tf.io.FixedLenFeature([1], tf.float32)})["x"] + added

    module = HalfPlusTwo()
    one = tf.TensorSpec([1], tf.float32)
    serialized = tf.TensorSpec([None], tf.string)
    functions: dict[str, tuple[str, tf.TensorSpec, Callable[[tf.Tensor], Tensors]]] = {
        "classify_x_to_y": ("inputs", serialized, lambda e: {"scores": module.of_examples(e, module.b)}),
        "classify_x2_to_y3": ("inputs", one, lambda x: {"scores": module.a * x + module.c}),
        "regress_x_to_y": ("inputs", serialized, lambda e: {"outputs": module.of_examples(e, module.b)}),
        "regress_x_to_y2": ("inputs", serialized, lambda e: {"outputs": module.of_examples(e, module.c)}),
        "regress_x2_to_y3": ("inputs", one, lambda x: {"outputs": module.a * x + module.c}),
    }
    signatures = {
        key: tf.function(function, autograph=False).get_concrete_function(tf.TensorSpec(spec.shape, spec.dtype, alias))
        for key, (alias, spec, function) in functions.items()
    }

    zero = tf.constant([0.0])

    @tf.function(input_signature=[tf.TensorSpec([1], tf.float32, "x")], autograph=False)
    def serve(x: tf.Tensor = zero) -> Tensors:  # a signature with a default
        return {"y": module.a * x + module.b}

    signatures["serving_default"] = serve
    tf.saved_model.save(module, str(path), signatures=signatures)


def _signature(inputs: Tensors, outputs: Tensors, method: str = PREDICT) -> Any:
    info = tf1.saved_model.build_tensor_info
    return tf1.saved_model.build_signature_def(
        {alias: info(tensor) for alias, tensor in inputs.items()},
        {alias: info(tensor) for alias, tensor in outputs.items()},
        method,
    )


def _save(path: Path, build: Callable[[], Signatures], tags: Iterable[str] = ("serve",)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default(), tf1.Session() as session:
        signatures = build()
        session.run(tf1.global_variables_initializer())
        builder = tf1.saved_model.builder.SavedModelBuilder(str(path))
        builder.add_meta_graph_and_variables(session, list(tags), signature_def_map=signatures)
        builder.save()
    return path


def _warmups() -> dict[str, list[bytes]]:
    """Return warm-up records by model: valid ones, one that fails, one of an unsupported type, random bytes."""
    valid, failing, unsupported = (prediction_log_pb2.PredictionLog() for _ in range(3))
    valid.predict_log.request.model_spec.name = "another"
    valid.predict_log.request.model_spec.signature_name = "serving_default"
    valid.predict_log.request.inputs["x"].CopyFrom(tf.make_tensor_proto([1.0, 2.0]))
    failing.predict_log.request.inputs["nosuch"].CopyFrom(tf.make_tensor_proto([1.0]))
    unsupported.session_run_log.request.model_spec.name = "m"
    empty = prediction_log_pb2.PredictionLog().SerializeToString()
    return {
        "warm_ok": [valid.SerializeToString(), empty],
        "warm_bad": [valid.SerializeToString(), failing.SerializeToString()],
        "warm_odd": [unsupported.SerializeToString()],
        "warm_garbage": [b"\xff\xff\xff"],
    }
