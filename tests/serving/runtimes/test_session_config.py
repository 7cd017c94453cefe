"""TensorFlow runs graphs as the config file and the flags say; flags take precedence."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from server_process import ServerProcess

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.options import flags
from savedmodel_bakery.serving.options.settings import read_settings
from savedmodel_bakery.serving.runtimes.direct_session import DirectSession
from savedmodel_bakery.serving.runtimes.tf_session import SavedModel
from savedmodel_bakery.wire import dtypes, schema
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor

FILE = """
intra_op_parallelism_threads: 7
inter_op_parallelism_threads: 7
operation_timeout_in_ms: 300
gpu_options { per_process_gpu_memory_fraction: 0.9 allow_growth: true }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "session"
    path.write_text(FILE)
    return path


def session(*arguments: str) -> object:
    return read_settings(flags.parse([*arguments, "--model_base_path=/m"])).session


def test_flags_override_the_file(file: Path) -> None:
    read = session(f"--tensorflow_session_config_file={file}", "--tensorflow_intra_op_parallelism=3")
    expected = schema.ConfigProto(
        intra_op_parallelism_threads=3, operation_timeout_in_ms=300, allow_soft_placement=True
    )
    expected.gpu_options.allow_growth = True
    expected.gpu_options.per_process_gpu_memory_fraction = 0.0
    assert expected == read


def test_flags_alone(caplog: pytest.LogCaptureFixture) -> None:
    read = session("--tensorflow_session_parallelism=2", "--per_process_gpu_memory_fraction=0.5")
    assert (2, 2) == (read.intra_op_parallelism_threads, read.inter_op_parallelism_threads)
    assert 0.5 == read.gpu_options.per_process_gpu_memory_fraction
    rewriting = session("--mixed_precision=bfloat16").graph_options.rewrite_options
    assert schema.RewriterConfig.ON == rewriting.auto_mixed_precision_onednn_bfloat16
    assert not caplog.messages
    assert not session("--mixed_precision=int8").graph_options.rewrite_options.auto_mixed_precision_onednn_bfloat16
    assert "mixed_precision=int8 has no effect" in caplog.text


def test_a_file_that_cannot_be_parsed_is_rejected(file: Path) -> None:
    file.write_text("threads: 7")
    with pytest.raises(StatusError, match="Invalid protobuf file"):
        session(f"--tensorflow_session_config_file={file}")


def test_models_run_with_these_options(half_plus_two: Path, file: Path) -> None:
    config = session(f"--tensorflow_session_config_file={file}").SerializeToString()
    model = SavedModel(half_plus_two / "1", config=config)
    endless = model.signatures["slow"]
    feeds = {endless.inputs["n"].name: Tensor(np.array(2**31 - 1, np.int32), dtypes.BY_NAME["int32"])}
    with pytest.raises(StatusError) as error:
        model.run(feeds, [endless.outputs["v"].name], RequestContext())
    assert Code.DEADLINE_EXCEEDED == error.value.code


def test_operations_have_one_thread_per_two_cpus_by_default(half_plus_two: Path, tmp_path: Path) -> None:
    def threads(*flags: str) -> int:
        """Return the number of threads without a name of their own, which run parts of operations."""
        flags = ("--model_name=m", f"--model_base_path={half_plus_two}", *flags)
        with ServerProcess(*flags, log=tmp_path / "log") as server:
            names = [path.read_text() for path in Path("/proc", str(server.process.pid), "task").glob("*/comm")]
        return sum("python" in name for name in names)

    automatic = max(1, (os.cpu_count() or 1) // 2)
    more = f"--tensorflow_intra_op_parallelism={automatic + 2}"
    fewest, fewest_more = threads(), threads(more)
    for _ in range(9):  # now and then a thread more has begun, to serve the first request
        if fewest_more - fewest == 2:
            break
        fewest, fewest_more = min(fewest, threads()), min(fewest_more, threads(more))
    assert 2 == fewest_more - fewest


class ThreadReporter(tf.Module):
    """Returns the thread that it ran in, like a TensorFlow 2 model, optionally with an operation that may wait."""

    def __init__(self, waits: str | None) -> None:
        super().__init__()
        self.zero = tf.Variable(0.0)
        self.waits = waits

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, "x")], autograph=False)
    def serve(self, x: tf.Tensor) -> tf.Tensor:
        x += self.zero
        if self.waits == "loop":
            (x,) = tf.while_loop(lambda i: i < 1.0, lambda i: [i + 1], [x])
        elif self.waits == "stage":
            tf.raw_ops.Stage(values=[x])  # which another run may wait for
        return tf.numpy_function(lambda _: np.int64(threading.get_ident()), [x], tf.int64, stateful=False)


@pytest.mark.parametrize("waits", [None, "loop", "stage"])
def test_a_small_graph_runs_in_the_callers_thread_unless_an_operation_may_wait(
    tmp_path: Path, waits: str | None
) -> None:
    module = ThreadReporter(waits)
    tf.saved_model.save(module, str(tmp_path / "1"))
    model = SavedModel(tmp_path / "1")
    signature = model.signatures["serving_default"]
    feeds = {signature.inputs["x"].name: Tensor(np.float32(0), dtypes.BY_NAME["float"])}
    (thread,) = model.run(feeds, [signature.outputs["output_0"].name], RequestContext(timeout_s=30))
    assert (waits is None) == (thread.array == threading.get_ident())


def pools_of_nested_runs(path: Path, counts: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Run a baked model on that many images at a time, each run during the one before; return the pools of the runs."""
    model, run, waiting, used = SavedModel(path), DirectSession.run, list(counts), []
    signature = model.signatures["top_k"]
    photo = tf.io.encode_png(np.zeros([8, 8, 3], np.uint8)).numpy()

    def run_next() -> None:
        count = waiting.pop(0)
        feeds = {signature.inputs["image"].name: Tensor(np.array([photo] * count, object), dtypes.STRING)}
        (ok,) = model.run(feeds, [signature.outputs["ok"].name], RequestContext(timeout_s=60))
        assert [True] * count == ok.array.tolist()

    def record(session: DirectSession, feeds: Any, fetches: Any, options: Any = None, metadata: Any = None) -> Any:
        used.append(options.inter_op_thread_pool)
        if waiting:
            run_next()
        return run(session, feeds, fetches, options, metadata)

    with closing(model), monkeypatch.context() as patch:
        patch.setattr(DirectSession, "run", record)
        run_next()
    return used


def test_one_image_on_a_baked_model_runs_in_the_callers_thread_without_other_runs(
    lite0: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [-1, 0, 0] == pools_of_nested_runs(lite0 / "1", [1, 1, 1], monkeypatch)
    assert [0] == pools_of_nested_runs(lite0 / "1", [2], monkeypatch)


def test_one_image_on_a_model_that_may_contain_others_runs_in_threads_of_the_session(
    lite0: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(lite0 / "1", tmp_path / "1", ignore=shutil.ignore_patterns("recipe.toml"))
    assert [0] == pools_of_nested_runs(tmp_path / "1", [1], monkeypatch)


def test_the_time_limit_applies_to_small_graphs(tmp_path: Path) -> None:
    """Every run takes longer than a nanosecond."""
    tf.saved_model.save(ThreadReporter(None), str(tmp_path / "1"))
    model = SavedModel(tmp_path / "1")
    signature = model.signatures["serving_default"]
    feeds = {signature.inputs["x"].name: Tensor(np.float32(0), dtypes.BY_NAME["float"])}
    fetches = [signature.outputs["output_0"].name]
    with pytest.raises(StatusError, match="DEADLINE_EXCEEDED: Timed out waiting for notification"):
        model.run(feeds, fetches, RequestContext(timeout_s=1e-9))
    assert [threading.get_ident()] == [
        tensor.array for tensor in model.run(feeds, fetches, RequestContext(timeout_s=30))
    ]
