"""Makes tiny SavedModels whose outputs are easy to calculate."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Concatenate, ParamSpec

import flatbuffers
import tensorflow as tf
from flatbuffers import flexbuffers
from tensorflow.lite.python import schema_py_generated as lite_schema

tf1 = tf.compat.v1
Tensors = dict[str, tf.Tensor]
Options = ParamSpec("Options")


def saved_once(make: Callable[Concatenate[Path, int | str, Options], Path]) -> Callable[..., Path]:
    """Let a maker write the version that it has saved before, if it has: saving takes up to half a second.

    The version appears on disk in one step.
    """
    versions: dict[object, dict[Path, bytes]] = {}

    @functools.wraps(make)
    def copy(base_path: Path, version: int | str = 1, *args: Options.args, **kwargs: Options.kwargs) -> Path:
        key = (args, *sorted(kwargs.items()))
        if key not in versions:
            with TemporaryDirectory() as folder:
                path = make(Path(folder), version, *args, **kwargs)
                files = (file for file in path.rglob("*") if file.is_file())
                versions[key] = {file.relative_to(path): file.read_bytes() for file in files}
        staged = base_path / f"{version}.staged"
        for name, content in versions[key].items():
            (staged / name).parent.mkdir(parents=True, exist_ok=True)
            (staged / name).write_bytes(content)
        return staged.rename(base_path / str(version))

    return copy


def _signature(inputs: Tensors, outputs: Tensors, method: str = "predict") -> object:
    info = tf1.saved_model.build_tensor_info
    return tf1.saved_model.build_signature_def(
        {alias: info(tensor) for alias, tensor in inputs.items()},
        {alias: info(tensor) for alias, tensor in outputs.items()},
        f"tensorflow/serving/{method}",
    )


@saved_once
def half_plus(base_path: Path, version: int | str, plus: float = 2.0, tags: tuple[str, ...] = ("serve",)) -> Path:
    """Save a TensorFlow 1 version that computes x / 2 + `plus`.

    Signatures: serving_default (x float [batch] → y), two (a, b → sum, diff), text (s string → t, t_bytes),
    slow (n int32 → v, after n steps), classify (inputs → classes, scores), regress (inputs → outputs), none (→ c).
    """
    with tf.Graph().as_default(), tf1.Session() as session:
        half, added = tf.Variable(0.5, name="half"), tf.Variable(plus, name="added")
        x = tf1.placeholder(tf.float32, [None], "x")
        a, b = tf1.placeholder(tf.float32, [None], "a"), tf1.placeholder(tf.float32, [None], "b")
        s = tf1.placeholder(tf.string, [None], "s")
        n = tf1.placeholder(tf.int32, [], "n")
        examples = tf1.placeholder(tf.string, [None], "examples")
        value = tf1.parse_example(examples, {"x": tf1.FixedLenFeature([1], tf.float32)})["x"]
        steps = tf1.while_loop(
            lambda i, _: i < n,
            lambda i, v: (i + 1, v + 1.0),
            (tf.constant(0), tf.constant(0.0)),
            parallel_iterations=1,
        )[1]
        label = tf.fill(tf.shape(value), "half")
        signatures = {
            "serving_default": _signature({"x": x}, {"y": tf.add(x * half, added, name="y")}),
            "two": _signature({"a": a, "b": b}, {"sum": a + b, "diff": a - b}),
            "text": _signature({"s": s}, {"t": tf.identity(s), "t_bytes": tf.identity(s)}),
            "slow": _signature({"n": n}, {"v": tf.identity(steps)}),
            "classify": _signature(
                {"inputs": examples}, {"classes": label, "scores": value * half + added}, "classify"
            ),
            "regress": _signature({"inputs": examples}, {"outputs": value * half + added}, "regress"),
            "none": _signature({}, {"c": tf.constant([1.5], name="c")}),
        }
        session.run(tf1.global_variables_initializer())
        builder = tf1.saved_model.builder.SavedModelBuilder(str(base_path / str(version)))
        builder.add_meta_graph_and_variables(session, list(tags), signature_def_map=signatures)
        builder.save()
    return base_path / str(version)


@saved_once
def batched(base_path: Path, version: int = 1) -> Path:
    """Save a version whose tensors have any shape, so that its outputs show how requests were joined.

    Signatures: serving_default (x float → y = x / 2 + 2), width (x → row's number of values, int32 [batch]), total
    (x → the sum of all, a scalar), shape (x → its shape), text (s string → t), boom (m int32 → 1 / m).
    """
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, None, "x")
        s = tf1.placeholder(tf.string, None, "s")
        m = tf1.placeholder(tf.int32, None, "m")
        rows, width = tf.shape(x)[:1], tf.size(x) // tf.shape(x)[0]
        signatures = {
            "serving_default": _signature({"x": x}, {"y": tf.add(x * 0.5, 2.0, name="y")}),
            "width": _signature({"x": x}, {"width": tf.fill(rows, width)}),
            "total": _signature({"x": x}, {"total": tf.reduce_sum(x)}),
            "shape": _signature({"x": x}, {"shape": tf.shape(x)}),
            "text": _signature({"s": s}, {"t": tf.identity(s)}),
            "boom": _signature({"m": m}, {"d": tf.math.floordiv(tf.constant(1), m)}),
        }
        builder = tf1.saved_model.builder.SavedModelBuilder(str(base_path / str(version)))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()
    return base_path / str(version)


def echoing(base_path: Path, dtypes: Iterable[str], version: int = 1) -> Path:
    """Save a version that returns its inputs: for each dtype, a signature named after it, x → y of any shape.

    Additional signatures: tree (a/0/b float, a/1/b float [2], k~1e~0y int32 [] → the same), fixed (x int32 [?, 3] → y).
    """
    with tf.Graph().as_default(), tf1.Session() as session:

        def make(dtype: str, shape: list[int | None] | None = None) -> tf.Tensor:
            return tf1.placeholder(tf.as_dtype(dtype), shape)

        tree = {
            "a/0/b": make("float32"),
            "a/1/b": make("float32", [2]),
            "k~1e~0y": make("int32", []),
        }
        inputs = {dtype: {"x": make(dtype)} for dtype in dtypes} | {"fixed": {"x": make("int32", [None, 3])}}
        signatures = {"tree": _signature(tree, {alias: tf.identity(tensor) for alias, tensor in tree.items()})}
        signatures |= {name: _signature(x, {"y": tf.identity(x["x"])}) for name, x in inputs.items()}
        builder = tf1.saved_model.builder.SavedModelBuilder(str(base_path / str(version)))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()
    return base_path / str(version)


def copying(base_path: Path, dtypes: Iterable[str], version: int = 1) -> Path:
    """Save a version with one signature that returns its inputs: x_DTYPE [?, 2] → y_DTYPE, and x int32 [] → y."""
    with tf.Graph().as_default(), tf1.Session() as session:
        inputs = {f"x_{dtype}": tf1.placeholder(dtype, [None, 2]) for dtype in dtypes}
        inputs["x"] = tf1.placeholder(tf.int32, [])
        outputs = {alias.replace("x", "y", 1): tf.identity(tensor) for alias, tensor in inputs.items()}
        builder = tf1.saved_model.builder.SavedModelBuilder(str(base_path / str(version)))
        signatures = {"serving_default": _signature(inputs, outputs)}
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()
    return base_path / str(version)


@saved_once
def counting(base_path: Path, version: int = 1) -> Path:
    """Save a version that counts its runs: x float [batch] → runs int32, including this one."""

    class Counting(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.runs = tf.Variable(0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")], autograph=False)
        def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            with tf.control_dependencies([x]):
                return {"runs": self.runs.assign_add(1)}

    module = Counting()
    path = base_path / str(version)
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})
    return path


@saved_once
def labelling(base_path: Path, version: int = 1) -> Path:
    """Save a version with the signature of a baked classifier: the label of `horse` is sorrel, of all else ox."""

    class Labelling(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image")], autograph=False)
        def serve(self, image: tf.Tensor) -> tf.Tensor:
            return tf.where(image == "horse", "sorrel", "ox")

    module = Labelling()
    path = base_path / str(version)
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})
    return path


@saved_once
def sizing(base_path: Path, version: int = 1, steps: int = 0, plus: int = 0, score: float = 0.5) -> Path:
    """Save a version whose `top_k` returns an image's number of bytes as label and class id, with a score.

    `plus` is added to the number. The second of two classes is `other`. Empty images, and those that begin with `bad`,
    are invalid. Each run counts to `steps`, to make it slow.
    """

    class Sizing(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image")], autograph=False)
        def top_k(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
            counted = tf.while_loop(lambda i: i < steps, lambda i: [i + 1], [0], parallel_iterations=1)
            with tf.control_dependencies(counted):
                size = tf.strings.length(image) + plus
            ok = tf.logical_not(tf.strings.regex_full_match(image, "|bad.*"))
            return {
                "labels": tf.stack([tf.strings.as_string(size), tf.fill(tf.shape(size), "other")], axis=1),
                "scores": tf.tile([[score, 0.25]], [tf.size(size), 1]),
                "class_ids": tf.stack([size, tf.zeros_like(size)], axis=1),
                "ok": ok,
                "error": tf.where(ok, "", "no image"),
            }

    module = Sizing()
    path = base_path / str(version)
    tf.saved_model.save(module, str(path), signatures={"top_k": module.top_k})
    return path


@saved_once
def half_plus_two_tf2(base_path: Path, version: int = 1) -> Path:
    """Save the same model with TensorFlow 2: x float [batch] → output_0."""

    class HalfPlusTwo(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.half, self.two = tf.Variable(0.5), tf.Variable(2.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")], autograph=False)
        def serve(self, x: tf.Tensor) -> tf.Tensor:
            return x * self.half + self.two

    module = HalfPlusTwo()
    path = base_path / str(version)
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})
    return path


def broken(base_path: Path, version: int) -> Path:
    """Save a version without its variables."""
    path = half_plus(base_path.parent / "whole", version)
    shutil.rmtree(path / "variables")
    base_path.mkdir(parents=True, exist_ok=True)
    return path.rename(base_path / str(version))


def write_warmup(version: Path, records: Iterable[bytes]) -> Path:
    """Write warm-up records to a version folder and return the file."""
    path = version / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path


def tf_lite(path: Path, *, signature: bytes | None = None) -> Path:
    """Save a TF Lite version that computes x / 2 + 2 for float [batch, 2]; the converter names its tensors.

    Args:
        path: the version folder.
        signature: a SignatureDef in ASCII bytes to store in the file's metadata as `of_file`; None for no metadata.
    """

    class Halves(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")], autograph=False)
        def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": tf.matmul(x, tf.constant([[0.5, 0.0], [0.0, 0.5]])) + 2.0}

    module = Halves()
    function = module.serve.get_concrete_function()
    content = tf.lite.TFLiteConverter.from_concrete_functions([function], module).convert()
    if signature is not None:
        model = lite_schema.ModelT.InitFromPackedBuf(content, 0)
        builder = flexbuffers.Builder()
        with builder.Map():
            builder.Key("of_file")
            builder.String(signature.decode("ascii"))
        buffer, entry = lite_schema.BufferT(), lite_schema.MetadataT()
        buffer.data = list(builder.Finish())
        model.buffers.append(buffer)
        entry.name, entry.buffer = "signature_defs_metadata", len(model.buffers) - 1
        model.metadata.append(entry)
        packed = flatbuffers.Builder()
        packed.Finish(model.Pack(packed), b"TFL3")
        content = bytes(packed.Output())
    path.mkdir(parents=True)
    (path / "model.tflite").write_bytes(content)
    return path
