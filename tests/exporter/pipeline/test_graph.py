"""The graph of a pipeline: models of TensorFlow 1 and 2 with weights, tables and files, connected by tensors only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import model_makers
import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.errors import PipelineError, RecipeError, VerificationError
from savedmodel_bakery.exporter.pipeline.check import check_pipeline
from savedmodel_bakery.exporter.pipeline.compose import Example, make_examples, run_steps, validate_pipeline
from savedmodel_bakery.exporter.pipeline.graph import save_pipeline
from savedmodel_bakery.exporter.pipeline.pipeline_file import parse_pipeline
from savedmodel_bakery.exporter.validation.session import SessionProcess
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.tensors import as_array

tf1 = tf.compat.v1
TEXTS = tf.TensorSpec([None], tf.string, name="text")
FLOATS = tf.TensorSpec([None], tf.float32, name="x")


class Lookup(tf.Module):
    """Looks words up in a file, and their numbers in a table that is part of the checkpoint."""

    def __init__(self, vocabulary: Path, values: list[float]) -> None:
        super().__init__()
        index = tf.lookup.TextFileIndex
        lines = tf.lookup.TextFileInitializer(str(vocabulary), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)
        self.lines = tf.lookup.StaticHashTable(lines, -1)
        self.values = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -5.0)
        self.values.insert(tf.range(len(values), dtype=tf.int64), tf.constant(values))
        self.file = tf.saved_model.Asset(str(vocabulary))

    @tf.function(input_signature=[TEXTS], autograph=False)
    def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        line = self.lines.lookup(text)
        return {"value": self.values.lookup(line), "line": line}

    @tf.function(input_signature=[TEXTS], autograph=False)
    def count(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        words = tf.strings.split(tf.io.read_file(self.file.asset_path))
        return {"count": tf.reduce_sum(tf.cast(text[:, tf.newaxis] == words, tf.float32), axis=1)}


class Times(tf.Module):
    """Multiplies by a variable, in a function that is called by another one; all models have the same names."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = tf.Variable(factor, name="factor")

    @tf.function
    def multiplied(self, x: tf.Tensor) -> tf.Tensor:
        return tf.cond(tf.size(x) > 0, lambda: x * self.factor, lambda: x)

    @tf.function(input_signature=[FLOATS], autograph=False)
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": self.multiplied(x), "x": x}


class Constant(tf.Module):
    """Multiplies by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self._factor = factor

    @tf.function(input_signature=[FLOATS], autograph=False)
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x * tf.constant(self._factor)}


class Drawn(tf.Module):
    """Returns random numbers."""

    @tf.function(input_signature=[FLOATS], autograph=False)
    def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        # Seeds of 0 mean none, also if another test has set TensorFlow's global seed.
        return {"y": x + tf.raw_ops.RandomUniform(shape=tf.shape(x), dtype=tf.float32, seed=0, seed2=0)}


def lookup_of_tf1(path: Path, vocabulary: Path) -> None:
    """Save a TensorFlow 1 model with a file and a table that its legacy initialiser fills."""
    with tf.Graph().as_default(), tf1.Session() as session:
        file = tf.constant(str(vocabulary))
        tf1.add_to_collection(tf1.GraphKeys.ASSET_FILEPATHS, file)
        index = tf.lookup.TextFileIndex
        lines = tf.lookup.TextFileInitializer(file, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)
        table = tf.lookup.StaticHashTable(lines, -1, name="lines")
        text = tf1.placeholder(tf.string, [None], "text")
        scale = tf1.get_variable("scale", [3], partitioner=tf1.fixed_size_partitioner(2), use_resource=False)
        value = tf.gather(tf.convert_to_tensor(scale), tf.maximum(table.lookup(text), 0))
        signature = tf1.saved_model.predict_signature_def({"text": text}, {"value": value})
        session.run([part.assign(values) for part, values in zip(scale, ([10, 20], [30]), strict=True)])
        builder = tf1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"serving_default": signature},
            assets_collection=tf1.get_collection(tf1.GraphKeys.ASSET_FILEPATHS),
            main_op=tf1.tables_initializer(),
        )
        builder.save()


def loop_of_tf1(path: Path) -> None:
    """Save a TensorFlow 1 model with a loop of n steps, whose operations are in a frame with a name."""
    tf1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), tf1.Session() as session:
            n = tf1.placeholder(tf.int32, [], "n")
            _, v = tf1.while_loop(lambda i, _: i < n, lambda i, v: (i + 1, v + 1.0), (tf.constant(0), tf.constant(0.0)))
            signature = tf1.saved_model.predict_signature_def({"n": n}, {"v": v})
            builder = tf1.saved_model.Builder(str(path))
            builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
            builder.save()
    finally:
        tf1.enable_control_flow_v2()


@pytest.fixture(scope="module")
def session() -> Iterator[SessionProcess]:
    """The process in which pipelines are validated."""
    with SessionProcess(on_cpu=True) as running:
        yield running


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    model_makers.half_plus(root / "half", 1)
    model_makers.batched(root / "any")
    model_makers.half_plus(root / "other/half", 1, plus=3.0)
    for name, lines in (("first", "a\nb\nc\n"), ("second", "c\nb\na\n")):
        (root / name).mkdir()
        (root / name / "words.txt").write_text(lines)
    lookup = Lookup(root / "first/words.txt", [10.0, 11.0, 12.0])
    signatures = {"serving_default": lookup.serve, "count": lookup.count}
    tf.saved_model.save(lookup, str(root / "lookup/1"), signatures=signatures)
    lookup_of_tf1(root / "lookup1", root / "second/words.txt")
    for name, module in (("twice", Times(2.0)), ("thrice", Times(3.0)), ("drawn", Drawn())):
        tf.saved_model.save(module, str(root / name), signatures=module.serve)
    for name, factor in (("tenth", 0.1), ("third", 1 / 3)):
        module = Constant(factor)
        tf.saved_model.save(module, str(root / name), signatures=module.serve)
    return root


def step(name: str, model: str, inputs: dict[str, str], outputs: dict[str, str], **values: Any) -> dict[str, Any]:
    return {"name": name, "model": model, "input_map": inputs, "output_map": outputs, **values}


def half(name: str, taken: str, made: str, model: str = "half") -> dict[str, Any]:
    return step(name, model, {"x": taken}, {"y": made})


def times(name: str, model: str, taken: str, made: str, **values: Any) -> dict[str, Any]:
    return step(name, model, {"x": taken}, {"y": made}, **({"drop": ["x"]} | values))


class Composed:
    """A composed pipeline, compared with its steps, and its outputs in a fresh TensorFlow 1 session."""

    def __init__(self, models: Path, path: Path, steps: list[dict[str, Any]], inputs: Mapping[str, Any]) -> None:
        taken = {name for described in steps for name in described["input_map"].values()}
        made = [name for described in steps for name in described["output_map"].values()]
        content = {"inputs": list(inputs), "outputs": [name for name in made if name not in taken], "steps": steps}
        self.checked = check_pipeline(parse_pipeline(content, folder=models, default_name="pipeline"))
        self.path = path
        save_pipeline(self.checked, path)
        self.example = Example(dict(inputs))
        (expected,) = run_steps(self.checked, [self.example])
        outputs, _ = self.run()
        assert {name: array.tolist() for name, array in expected.items()} == outputs

    def run(self) -> tuple[dict[str, list[Any]], Any]:
        """Return the outputs, and the graph."""
        with tf.Graph().as_default() as graph, tf1.Session() as session:
            signature = tf1.saved_model.load(session, ["serve"], str(self.path)).signature_def["serving_default"]
            feeds = {signature.inputs[name].name: array for name, array in self.example.inputs.items()}
            outputs = session.run({name: info.name for name, info in signature.outputs.items()}, feeds)
        return {name: as_array(value).tolist() for name, value in outputs.items()}, graph


def texts(*values: str) -> np.ndarray:
    return np.array([value.encode() for value in values], object)


def test_models_of_both_versions_of_tensorflow_bring_their_weights_tables_and_files(
    models: Path, tmp_path: Path
) -> None:
    steps = [
        step("look up", "lookup", {"text": "text"}, {"value": "v", "line": "line"}),
        step("look up too", "lookup1", {"text": "text"}, {"value": "w"}),
        half("halve", "v", "h"),
        times("double", "twice", "w", "d"),
    ]
    composed = Composed(models, tmp_path / "out", steps, {"text": texts("a", "c", "z")})
    expected = {"line": [0, 2, -1], "h": [7.0, 8.0, -0.5], "d": [60.0, 20.0, 20.0]}
    outputs, _ = composed.run()
    assert expected == outputs
    assert {"1_lookup_words.txt", "2_lookup1_words.txt"} == {file.name for file in (tmp_path / "out/assets").iterdir()}
    loaded = tf.saved_model.load(str(tmp_path / "out")).signatures["serving_default"]
    assert expected == {
        name: array.numpy().tolist() for name, array in loaded(text=tf.constant(["a", "c", "z"])).items()
    }


def test_a_composed_version_can_be_moved(models: Path, tmp_path: Path) -> None:
    steps = [
        step("count", "lookup", {"text": "text"}, {"count": "n"}, signature="count"),
        step("look up", "lookup1", {"text": "text"}, {"value": "v"}),
    ]
    composed = Composed(models, tmp_path / "out", steps, {"text": texts("a", "z")})
    composed.path = composed.path.rename(tmp_path / "moved")
    checkpoint = tf.train.load_checkpoint(str(composed.path / "variables/variables"))
    texts_of_checkpoint = [checkpoint.get_tensor(name) for name, dtype in checkpoint.get_variable_to_dtype_map().items()
                           if dtype == tf.string]  # fmt: skip
    assert {b""} == set(texts_of_checkpoint)  # the path of the file that the first step reads
    outputs, _ = composed.run()
    assert {"n": [1.0, 0.0], "v": [30.0, 10.0]} == outputs
    assert {"1_lookup_words.txt", "2_lookup1_words.txt"} == {
        file.name for file in (tmp_path / "moved/assets").iterdir()
    }


def test_a_model_of_several_steps_is_there_once(models: Path, tmp_path: Path) -> None:
    steps = [half("first", "x", "y"), half("second", "y", "z"), times("third", "twice", "z", "t")]
    steps += [times("fourth", "twice", "t", "u")]
    composed = Composed(models, tmp_path / "out", steps, {"x": np.float32([4])})
    outputs, _ = composed.run()
    assert {"u": [16.0]} == outputs
    variables = tf.train.list_variables(str(tmp_path / "out/variables/variables"))
    assert ["half/added", "half/half", "twice/factor"] == sorted(name for name, _ in variables)


def test_models_with_the_same_names_keep_their_own_weights_and_functions(models: Path, tmp_path: Path) -> None:
    model_makers.half_plus(models / "half_2", 1, plus=4.0)
    steps = [
        half("first", "x", "y"),
        half("second", "y", "z", "other/half"),
        half("third", "z", "s", "half_2"),
        times("fourth", "twice", "s", "t"),
        times("fifth", "thrice", "t", "u"),
    ]
    composed = Composed(models, tmp_path / "out", steps, {"x": np.float32([4])})
    outputs, _ = composed.run()
    assert {"u": [39.0]} == outputs
    variables = {
        name.partition("/")[0] for name, _ in tf.train.list_variables(str(tmp_path / "out/variables/variables"))
    }
    assert {"half", "half_2", "half_2_2", "twice", "thrice"} == variables


def test_files_of_models_stay_apart_whatever_their_names_are(models: Path, tmp_path: Path) -> None:
    words = {("a", "b_words.txt"): "a\nb\n", ("a_b", "words.txt"): "b\na\n"}
    for (name, file), lines in words.items():
        (tmp_path / file).write_text(lines)
        lookup = Lookup(tmp_path / file, [10.0, 11.0])
        tf.saved_model.save(lookup, str(models / name / "1"), signatures=lookup.serve)
    steps = [step(name, name, {"text": "text"}, {"value": name}, drop=["line"]) for name, _ in words]
    composed = Composed(models, tmp_path / "out", steps, {"text": texts("a", "b")})
    outputs, _ = composed.run()
    assert {"a": [10.0, 11.0], "a_b": [11.0, 10.0]} == outputs


def test_loops_of_tensorflow_1_in_several_steps_are_separate(models: Path, tmp_path: Path) -> None:
    loop_of_tf1(models / "loop")
    steps = [step(name, "loop", {"n": taken}, {"v": made}) for name, taken, made in
             (("a b", "n", "v"), ("a_b", "m", "w"))]  # fmt: skip
    composed = Composed(models, tmp_path / "out", steps, {"n": np.int32(3), "m": np.int32(7)})
    outputs, graph = composed.run()
    assert {"v": 3.0, "w": 7.0} == outputs
    frames = {operation.get_attr("frame_name") for operation in graph.get_operations() if operation.type == "Enter"}
    assert {b"a_b/while/while_context", b"a_b_2/while/while_context"} == frames


def test_an_output_may_be_an_input_unchanged_and_be_taken_twice(models: Path, tmp_path: Path) -> None:
    steps = [
        step("first", "twice", {"x": "x"}, {"x": "same"}, drop=["y"]),
        times("second", "twice", "same", "y"),
        times("third", "thrice", "same", "z"),
        step("sum", "half", {"a": "y", "b": "z"}, {"sum": "sum", "diff": "difference"}, signature="two"),
    ]
    composed = Composed(models, tmp_path / "out", steps, {"x": np.float32([1, 2])})
    outputs, _ = composed.run()
    assert {"sum": [5.0, 10.0], "difference": [-1.0, -2.0]} == outputs


def dependencies(graph: Any, name: str) -> set[str]:
    """Return the scopes of the operations that an operation depends on, also by control dependencies."""
    pending, visited = [graph.get_operation_by_name(name)], set()
    while pending:
        operation = pending.pop()
        if operation not in visited:
            visited.add(operation)
            pending += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
    return {operation.name.partition("/")[0] for operation in visited}


def test_steps_that_do_not_need_each_other_have_no_dependency(models: Path, tmp_path: Path) -> None:
    steps = [
        times("left", "twice", "x", "l"),
        times("right", "twice", "x", "r"),
        step("up", "lookup", {"text": "text"}, {"value": "u"}, drop=["line"]),
        half("after", "l", "a"),
    ]
    composed = Composed(models, tmp_path / "out", steps, {"x": np.float32([1]), "text": texts("a")})
    _, graph = composed.run()
    assert {"right", "x", "twice", "tensors"} == dependencies(graph, "tensors/r")
    assert {"up", "text", "models", "tensors"} == dependencies(graph, "tensors/u")
    assert {"after", "left", "x", "twice", "half", "tensors"} == dependencies(graph, "tensors/a")
    for operation in graph.get_operations():
        scope = operation.name.partition("/")[0]
        if scope in ("left", "right", "up", "after"):
            assert {scope} >= {control.name.partition("/")[0] for control in operation.control_inputs}


def test_constants_of_different_steps_are_not_joined(models: Path, tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).random(1000, np.float32)
    steps = [step(name, name, {"x": taken}, {"y": made}) for name, taken, made in
             (("tenth", "x", "y"), ("third", "y", "z"))]  # fmt: skip
    composed = Composed(models, tmp_path / "out", steps, {"x": numbers})
    outputs, _ = composed.run()
    one_after_another = numbers * np.float32(0.1) * np.float32(1 / 3)
    assert one_after_another.tolist() == outputs["z"]
    assert (one_after_another != numbers * (np.float32(0.1) * np.float32(1 / 3))).any()


def test_tensors_of_unknown_rank_are_connected(models: Path, tmp_path: Path) -> None:
    steps = [half("first", "x", "y"), half("second", "y", "z", "any"), half("third", "z", "u", "any")]
    composed = Composed(models, tmp_path / "out", steps, {"x": np.float32([4])})
    outputs, _ = composed.run()
    assert {"u": [4.0]} == outputs


def test_a_tensor_between_steps_must_have_the_shape_that_was_agreed(models: Path, tmp_path: Path) -> None:
    module = tf.Module()
    module.serve = tf.function(
        lambda x: {"y": x}, input_signature=[tf.TensorSpec([3], tf.float32, name="x")], autograph=False
    )
    tf.saved_model.save(module, str(models / "three"), signatures=module.serve)
    steps = [half("first", "x", "y"), step("second", "three", {"x": "y"}, {"y": "z"})]
    composed = Composed(models, tmp_path / "out", steps, {"x": np.float32([1, 2, 3])})
    composed.example = Example({"x": np.float32([1, 2])})
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"Shape of tensor first/y \[2\] is not compatible .*\[3\]"
    ):
        composed.run()


def test_random_steps_are_rejected(session: SessionProcess, models: Path, tmp_path: Path) -> None:
    steps = [half("a", "x", "h"), step("b", "drawn", {"x": "h"}, {"y": "y"})]
    content = {"inputs": ["x"], "outputs": ["y"], "steps": steps}
    checked = check_pipeline(parse_pipeline(content, folder=models, default_name="pipeline"))
    save_pipeline(checked, tmp_path / "out")
    examples = [Example({"x": np.float32([1, 2, 3, 4])})]
    message = r'the output "y" of the pipeline is not that of the steps .*: numbers differ, by up to 0\.\d+; steps'
    with pytest.raises(VerificationError, match=message):
        validate_pipeline(tmp_path / "out", session, checked, examples, "pipeline")


class Ended(tf.Module):
    """Appends a zero to a text, which numpy would drop from an array of bytes."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, name="text")], autograph=False)
    def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"text": text + b"\0"}


def test_scalar_texts_are_compared(session: SessionProcess, models: Path, tmp_path: Path) -> None:
    module = Ended()
    tf.saved_model.save(module, str(models / "ended"), signatures=module.serve)
    steps = [step(name, "ended", {"text": taken}, {"text": made}) for name, taken, made in
             (("first", "a", "b"), ("second", "b", "c"))]  # fmt: skip
    composed = Composed(models, tmp_path / "out", steps, {"a": np.array(b"a", object)})
    (tmp_path / "out/assets.extra").mkdir()
    assert 1 == validate_pipeline(composed.path, session, composed.checked, [composed.example], "pipeline")
    (expected,) = run_steps(composed.checked, [composed.example])
    assert {"c": b"a\0\0"} == {name: array.item() for name, array in expected.items()}


def test_all_batches_of_examples_are_compared(
    session: SessionProcess, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("savedmodel_bakery.exporter.pipeline.compose._BATCH", 1)
    composed = Composed(models, tmp_path / "out", [half("halve", "x", "h")], {"x": np.float32([4])})
    (tmp_path / "out/assets.extra").mkdir()
    examples = (Example({"x": np.float32([number])}) for number in (4, 8))
    assert 2 == validate_pipeline(composed.path, session, composed.checked, examples, "pipeline")
    goldens = tmp_path / "out/assets.extra/goldens/serving_default.jsonl"
    assert 2 == len(goldens.read_text().splitlines())


class Strict(tf.Module):
    """Returns the lengths of images, and fails on a text in angle brackets."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image")], autograph=False)
    def serve(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        is_text = tf.strings.regex_full_match(image, "<.*>")
        with tf.control_dependencies([tf.debugging.Assert(~tf.reduce_any(is_text), ["no image"])]):
            return {"length": tf.strings.length(image)}


def test_photos_are_the_examples_of_images_and_a_pipeline_may_reject_others(models: Path, tmp_path: Path) -> None:
    module = Strict()
    tf.saved_model.save(module, str(models / "strict"), signatures=module.serve)
    steps = [step("measure", "strict", {"image": "photo"}, {"length": "n"}), half("halve", "x", "h")]
    content = {"inputs": ["photo", "x"], "outputs": ["n", "h"], "steps": steps}
    checked = check_pipeline(parse_pipeline(content, folder=models, default_name="pipeline"))
    for name, size in (("large", 20), ("small", 10)):
        (tmp_path / name).write_bytes(b"x" * size)
    examples = list(make_examples(checked, [tmp_path / "large", tmp_path / "small"], None))
    assert [[10, 6], [10], [20]] == [list(map(len, example.inputs["photo"])) for example in examples]
    assert [(2,), (1,), (1,)] == [example.inputs["x"].shape for example in examples]
    rejected, *answers = run_steps(checked, examples)
    assert rejected is None
    assert [[10], [20]] == [answer["n"].tolist() for answer in answers if answer]
    with pytest.raises(RecipeError, match=r"the example's x is float64\[1\]; the input is x:float32\[\?\]"):
        make_examples(checked, [], {"photo": texts("a"), "x": np.float64([1])})
    one_by_one = make_examples(checked, [tmp_path / "large", tmp_path / "small"], None)
    assert [10, 6] == list(map(len, next(one_by_one).inputs["photo"]))
    (tmp_path / "large").write_bytes(b"x" * 30)
    assert [10, 30] == [len(example.inputs["photo"][0]) for example in one_by_one]


def test_state_that_is_neither_a_variable_nor_a_table_is_rejected(models: Path, tmp_path: Path) -> None:
    path = tmp_path / "queue"
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None], "x")
        size = tf.raw_ops.QueueSizeV2(handle=tf.raw_ops.FIFOQueueV2(component_types=[tf.float32], name="queue"))
        signature = tf1.saved_model.predict_signature_def({"x": x}, {"y": x + tf.cast(size, tf.float32)})
        builder = tf1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    saved = schema.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    saved.meta_graphs[0].saver_def.restore_op_name = "queue"  # as if the queue's content were in the checkpoint
    (path / "saved_model.pb").write_bytes(saved.SerializeToString())
    content = {"inputs": ["x"], "outputs": ["y"], "steps": [half("a", "x", "y", str(path))]}
    with pytest.raises(
        PipelineError, match=r"queue keeps state in an operation FIFOQueueV2 \(queue\), which cannot be"
    ):
        save_pipeline(check_pipeline(parse_pipeline(content, folder=models, default_name="p")), tmp_path / "out")


def test_a_step_that_calls_python_is_rejected(models: Path, tmp_path: Path) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")], autograph=False)
    def call(x: Any) -> Any:
        return {"y": tf.numpy_function(lambda value: value * 2, [x], tf.float32)}

    module = tf.Module()
    module.call = call
    tf.saved_model.save(module, str(tmp_path / "python"), {"serving_default": call})
    content = {"inputs": ["x"], "outputs": ["y"], "steps": [half("a", "x", "y", str(tmp_path / "python"))]}
    with pytest.raises(
        PipelineError, match=r"python calls Python code in an operation PyFunc \(.*\), which a SavedModel"
    ):
        save_pipeline(check_pipeline(parse_pipeline(content, folder=models, default_name="p")), tmp_path / "out")


@pytest.fixture
def damaged(models: Path) -> Iterator[Path]:
    path = models / "broken/1"
    yield model_makers.broken(models / "broken", 1)
    assert path.is_dir()


def test_a_model_that_cannot_be_loaded_or_run_is_named(models: Path, tmp_path: Path, damaged: Path) -> None:
    with pytest.raises(PipelineError, match=rf"cannot load the SavedModel in {re.escape(str(damaged))}"):
        Composed(models, tmp_path / "out", [half("a", "x", "y", "broken")], {"x": np.float32([1])})
    steps = [step("boom", "half", {"a": "a", "b": "b"}, {"sum": "s", "diff": "d"}, signature="two")]
    checked = check_pipeline(
        parse_pipeline({"inputs": ["a", "b"], "outputs": ["s", "d"], "steps": steps}, folder=models, default_name="p")
    )
    with pytest.raises(PipelineError, match=r'step "boom" fails on an example: .*; pass inputs .*--example FILE\.npz'):
        run_steps(checked, [Example({"a": np.float32([1, 2]), "b": np.float32([1, 2, 3])})])
