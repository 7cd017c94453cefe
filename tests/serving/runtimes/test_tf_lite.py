"""TF Lite models: when they are served, their signatures, and the shapes and types they accept."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import model_makers
import numpy as np
import pytest
import requests
import tensorflow as tf
from server_process import ServerProcess

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.models.loading import Batching, LoadOptions, load
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.serving.options.config_files import BatchingParameters
from savedmodel_bakery.serving.runtimes import tf_lite
from savedmodel_bakery.wire import dtypes, schema
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor

FLOAT, INT = dtypes.BY_NAME["float"], dtypes.BY_NAME["int32"]
PREFERRED = LoadOptions(prefer_tf_lite=True)
INPUT, OUTPUT = "serving_default_x:0", "PartitionedCall:0"


def signature(source: str, target: str) -> bytes:
    message = schema.SignatureDef(method_name="tensorflow/serving/predict")
    message.inputs["a"].name, message.outputs["b"].name = source, target
    return message.SerializeToString()


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_makers.tf_lite(tmp_path_factory.mktemp("tf_lite") / "m" / "1")


@pytest.fixture(scope="module")
def servable(version: Path) -> Servable:
    return load("m", 1, version, PREFERRED)


def run(servable: Servable, array: np.ndarray, dtype: Any = FLOAT) -> list[Any]:
    (tensor,) = servable.runtime.run({INPUT: Tensor(array, dtype)}, [OUTPUT], RequestContext())
    assert FLOAT is tensor.dtype
    return tensor.array.tolist()  # type: ignore[no-any-return]


def test_without_signatures_aliases_are_tensor_names_up_to_the_colon(servable: Servable) -> None:
    ((name, signature_def),) = servable.signatures.items()
    assert ("serving_default", "tensorflow/serving/predict") == (name, signature_def.method_name)
    info = signature_def.inputs["serving_default_x"]
    assert (INPUT, FLOAT.number, [-1, 2]) == (info.name, info.dtype, [dim.size for dim in info.tensor_shape.dim])
    assert {"PartitionedCall": OUTPUT} == {alias: info.name for alias, info in signature_def.outputs.items()}


def test_inputs_are_resized_to_the_feeds(servable: Servable) -> None:
    for rows in (1, 3, 2):
        assert [[2.5, 3.0]] * rows == run(servable, np.float32([[1, 2]] * rows))


def test_concurrent_calls(servable: Servable) -> None:
    arrays = [np.full((1 + number % 4, 2), number, np.float32) for number in range(64)]
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda array: run(servable, array), arrays))
    assert [(array / 2 + 2).tolist() for array in arrays] == results


def test_another_element_type_is_rejected(servable: Servable) -> None:
    with pytest.raises(StatusError, match="Expects arg\\[0\\] to be float but int32 is provided"):
        run(servable, np.int32([[1, 2]]), INT)


def convolution(path: Path, rows: int | None) -> Path:
    """A version with a convolution, for an input of shape [rows, 8, 8, 3]; an output of shape [rows, 8, 8, 2]."""
    model = keras.Sequential([keras.Input((8, 8, 3), batch_size=rows), keras.layers.Conv2D(2, 3, padding="same")])
    path.mkdir(parents=True)
    (path / "model.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    return path


@pytest.mark.parametrize("rows", [1, None])
def test_every_size_that_the_model_fixes_is_compared(tmp_path: Path, rows: int | None) -> None:
    """With others the interpreter may end the process, or give wrong answers from then on."""
    servable = load("m", 1, convolution(tmp_path / "1", rows), LoadOptions(prefer_tf_lite=True, tf_lite_interpreters=1))
    signature = servable.signatures["serving_default"]
    (source,), (target,) = signature.inputs.values(), signature.outputs.values()

    def call(*shape: int) -> np.ndarray:
        array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        (tensor,) = servable.runtime.run({source.name: Tensor(array, FLOAT)}, [target.name], RequestContext())
        return tensor.array

    expected = call(1, 8, 8, 3)
    wrong = [(1, 1, 1, 3), (1, 3, 8, 8), (1, 8, 8, 6), (1, 16, 8, 3), *([(2, 8, 8, 3)] if rows else [])]
    for shape in wrong:
        declared = f"[{rows or '?'},8,8,3] but [{','.join(map(str, shape))}] is provided"
        with pytest.raises(StatusError, match=re.escape(f"INVALID_ARGUMENT: Expects arg[0] to have shape {declared}")):
            call(*shape)
        np.testing.assert_array_equal(expected, call(1, 8, 8, 3))
    assert rows or (5, 8, 8, 2) == call(5, 8, 8, 3).shape


def converted(path: Path, model: keras.Model) -> Servable:
    """The version of a model of Keras."""
    path.mkdir(parents=True)
    (path / "model.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    return load("m", 1, path, PREFERRED)


def call(servable: Servable, **shapes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Run a version on ones, by the end of its inputs' names; return the shapes of its outputs."""
    signature = servable.signatures["serving_default"]
    feeds = {
        info.name: Tensor(np.ones(next(shapes[name] for name in shapes if name in alias), np.float32), FLOAT)
        for alias, info in signature.inputs.items()
    }
    outputs = [info.name for info in signature.outputs.values()]
    return [tensor.array.shape for tensor in servable.runtime.run(feeds, outputs, RequestContext())]


def test_sizes_of_one_are_fixed_too(tmp_path: Path) -> None:
    layers = keras.layers
    pixel = converted(tmp_path / "1", keras.Sequential([keras.Input((1, 1, 1), name="x"), layers.Conv2D(2, 1)]))
    assert [(3, 1, 1, 2)] == call(pixel, x=(3, 1, 1, 1))
    number = converted(tmp_path / "2", keras.Sequential([keras.Input((1,), name="x"), layers.Dense(2)]))
    assert [(3, 2)] == call(number, x=(3, 1)) == call(number, x=(3,))
    for servable, shapes in ((pixel, [(1, 64, 64, 3), (3, 1, 1), (3,)]), (number, [(2, 64), (2, 3, 4), (0, 2)])):
        for shape in shapes:
            with pytest.raises(StatusError, match=r"INVALID_ARGUMENT: Expects arg\[0\] to have"):
                call(servable, x=shape)


def test_inputs_without_elements_are_rejected(servable: Servable) -> None:
    """Some operations read and write beyond them."""
    for shape in ((0, 2), (0,), (2, 0)):
        with pytest.raises(StatusError, match=r"INVALID_ARGUMENT: Expects arg\[0\] to have elements but shape \["):
            run(servable, np.ones(shape, np.float32))


def test_sizes_that_do_not_fit_each_other_are_rejected(tmp_path: Path) -> None:
    """XNNPACK would read beyond the inputs, or end the process."""
    inputs = [keras.Input((4,), name="left"), keras.Input((4,), name="right")]
    joined = converted(tmp_path / "1", keras.Model(inputs, keras.layers.Concatenate()(inputs)))
    assert [(2, 8)] == call(joined, left=(2, 4), right=(2, 4))
    with pytest.raises(StatusError, match="INVALID_ARGUMENT"):
        call(joined, left=(2, 4), right=(3, 4))
    added = converted(tmp_path / "2", keras.Model(inputs, keras.layers.Add()(inputs)))
    assert [(2000, 4)] == call(added, left=(1, 4), right=(2000, 4)) == call(added, left=(2000, 4), right=(1, 4))
    picture = [keras.Input((None, None, 3), name="x"), keras.layers.Conv2D(4, 3), keras.layers.MaxPool2D()]
    free = converted(tmp_path / "3", keras.Sequential([*picture, keras.layers.Conv2D(2, 3)]))
    assert [(1, 7, 7, 2)] == call(free, x=(1, 20, 20, 3))
    for side in (1, 2, 3, 5):
        with pytest.raises(StatusError, match="INVALID_ARGUMENT"):
            call(free, x=(1, side, side, 3))
    assert [(2, 1, 2, 2)] == call(free, x=(2, 8, 10, 3))


def test_an_interpreter_that_has_failed_is_not_used_again(servable: Servable, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []

    def fail(interpreter: object, *_: object) -> None:
        used.append(interpreter)
        raise StatusError(Code.INVALID_ARGUMENT, "failed")

    with monkeypatch.context() as patch:
        patch.setattr(tf_lite, "_invoke", fail)
        for _ in range(3):
            with pytest.raises(StatusError, match="failed"):
                run(servable, np.float32([[1, 2]]))
    assert 3 == len({*map(id, used)})
    assert [[2.5, 3.0]] == run(servable, np.float32([[1, 2]]))


def any_rank(path: Path) -> Path:
    """A version that doubles floats of any shape."""

    class Doubles(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec(None, tf.float32, name="x")], autograph=False)
        def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": x * 2.0}

    module = Doubles()
    function = module.serve.get_concrete_function()
    path.mkdir(parents=True)
    content = tf.lite.TFLiteConverter.from_concrete_functions([function], module).convert()
    (path / "model.tflite").write_bytes(content)
    return path


def column(path: Path, rows: int | None) -> Path:
    """A version that computes x / 2 + 2 for an input of shape [rows, 1]."""

    class Halves(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([rows, 1], tf.float32, name="x")], autograph=False)
        def serve(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": x / 2.0 + 2.0}

    module = Halves()
    path.mkdir(parents=True)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([module.serve.get_concrete_function()], module)
    (path / "model.tflite").write_bytes(converter.convert())
    return path


@pytest.mark.parametrize("rows", [1, None])
def test_an_input_of_one_column_accepts_a_vector(tmp_path: Path, rows: int | None) -> None:
    """It is resized to the request, unless that has as many elements: these are copied into the input as it is."""
    servable = load("m", 1, column(tmp_path / "1", rows), PREFERRED)
    for _ in range(2):
        assert [2.5, 3.0, 3.5] == run(servable, np.float32([1, 2, 3]))
        assert [[2.5]] == run(servable, np.float32([1]))
        assert [[2.5], [3.0]] == run(servable, np.float32([[1], [2]]))
        assert [[[2.5], [3.0]]] == run(servable, np.float32([[[1], [2]]]))
    with pytest.raises(StatusError, match="arg\\[0\\] to have up to 6 dimensions but 7 are provided"):
        run(servable, np.ones([1, 1, 1, 1, 1, 1, 2], np.float32))


def test_ranks_that_would_crash_the_interpreter_are_rejected(tmp_path: Path) -> None:
    servable = load("m", 1, any_rank(tmp_path / "1"), PREFERRED)
    for rank in (1, 0, 6, 2):
        assert np.full([1] * rank, 2.0).tolist() == run(servable, np.ones([1] * rank, np.float32))
    for rank in (7, 9, 30):
        with pytest.raises(StatusError, match=f"arg\\[0\\] to have up to 6 dimensions but {rank} are provided"):
            run(servable, np.ones([1] * rank, np.float32))
    assert [2.0] == run(servable, np.ones([1], np.float32))


@pytest.mark.parametrize("source", [INPUT, f"{INPUT}:0"], ids=["as it is", "with a :0 too many"])
def test_signatures_in_the_file(tmp_path: Path, source: str) -> None:
    path = model_makers.tf_lite(tmp_path / "1", signature=signature(source, OUTPUT))
    servable = load("m", 1, path, PREFERRED)
    assert ["of_file"] == list(servable.signatures)
    assert INPUT == servable.signatures["of_file"].inputs["a"].name
    assert [[2.5, 3.0]] == run(servable, np.float32([[1, 2]]))


def test_signatures_that_name_an_unknown_tensor_fail_the_load(tmp_path: Path) -> None:
    path = model_makers.tf_lite(tmp_path / "1", signature=signature("nosuch:0", OUTPUT))
    with pytest.raises(StatusError, match="INTERNAL: Unknown tensor 'nosuch:0'"):
        load("m", 1, path, PREFERRED)


def test_an_invalid_file_fails_the_load(tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(b"no model")
    with pytest.raises(StatusError, match="INVALID_ARGUMENT: the TF Lite model cannot be loaded"):
        load("m", 1, tmp_path, PREFERRED)


def test_without_preference_or_file_the_saved_model_is_loaded(version: Path, half_plus_two: Path) -> None:
    with pytest.raises(StatusError, match="does not appear to contain a SavedModel"):
        load("m", 1, version, LoadOptions())
    assert "two" in load("m", 1, half_plus_two / "1", PREFERRED).signatures


def test_batching_applies_to_tf_lite_models(version: Path) -> None:
    parameters = BatchingParameters(max_batch_size=2, batch_timeout_micros=0)
    batching = Batching(parameters, per_model=False, slots=threading.Semaphore(1))
    batched = load("m", 1, version, LoadOptions(prefer_tf_lite=True, batching=batching))
    assert [[2.5, 3.0]] == run(batched, np.float32([[1, 2]]))
    with pytest.raises(StatusError, match="Task size 3 is larger than maximum input batch size 2"):
        run(batched, np.float32([[1, 2]] * 3))
    batched.close()


def test_the_flag_makes_the_server_prefer_tf_lite(version: Path, tmp_path: Path) -> None:
    flags = ("--model_name=m", f"--model_base_path={version.parent}", "--prefer_tflite_model")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        body = {"instances": [[1.0, 2.0]]}
        response = requests.post(f"{server.url}/v1/models/m:predict", json=body, timeout=30)
        assert {"predictions": [[2.5, 3.0]]} == response.json()
        metadata = requests.get(f"{server.url}/v1/models/m/metadata", timeout=30).json()
        assert ["serving_default"] == list(metadata["metadata"]["signature_def"]["signature_def"])


def test_another_rank_after_a_valid_call_does_not_crash_the_server(version: Path, tmp_path: Path) -> None:
    flags = ("--model_name=m", f"--model_base_path={version.parent}", "--prefer_tflite_model", "--num_tflite_pools=1")
    with ServerProcess(*flags, log=tmp_path / "log") as server:

        def predict(inputs: object) -> object:
            return requests.post(f"{server.url}/v1/models/m:predict", json={"inputs": inputs}, timeout=30).json()

        good = [[1.0, 2.0], [1.0, 2.0]]
        assert {"outputs": [[2.5, 3.0]] * 2} == predict(good)
        for rank in (9, 1, 3):
            error = f"Expects arg[0] to have 2 dimensions but {rank} are provided"
            assert {"error": error} == predict(np.ones([1] * rank).tolist())
        assert {"outputs": [[2.5, 3.0]] * 2} == predict(good)
        assert server.process.poll() is None
