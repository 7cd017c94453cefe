"""Batching: which requests are joined, what the model gets, and what each caller gets back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import model_makers
import numpy as np
import pytest
from server_process import ServerProcess
from waiting import wait_until

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.models.loading import Batching, LoadOptions, load
from savedmodel_bakery.serving.options.config_files import FILE_IN_VERSION, BatchingParameters
from savedmodel_bakery.serving.runtimes.batching import Batcher
from savedmodel_bakery.serving.runtimes.tf_session import SavedModel
from savedmodel_bakery.serving.telemetry.metrics import REGISTRY
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor

# Long enough for every caller of a test to arrive on a busy machine; full batches, which tests make, don't wait for it.
WAIT_MICROS = 60_000_000
SHORT_WAIT_MICROS = 400_000  # for batches that never become full


class RecordingRuntime:
    """A runtime that records the inputs of each run, and can be paused before one."""

    def __init__(self, runtime: SavedModel) -> None:
        self._runtime = runtime
        self.runs: list[dict[str, np.ndarray]] = []
        self.gate = threading.Event()
        self.gate.set()

    @property
    def signatures(self) -> Mapping[str, Any]:
        return self._runtime.signatures

    def run(self, feeds: Mapping[str, Tensor], fetches: Sequence[str], context: RequestContext) -> list[Tensor]:
        self.runs.append({name: tensor.array for name, tensor in feeds.items()})
        self.gate.wait(30)
        return self._runtime.run(feeds, fetches, context)

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    path = model_makers.batched(tmp_path_factory.mktemp("batched"))
    return SavedModel(path)


@pytest.fixture
def recorder(model: SavedModel) -> RecordingRuntime:
    return RecordingRuntime(model)


MakeBatcher = Callable[..., Batcher]


@pytest.fixture
def make_batcher(recorder: RecordingRuntime) -> Iterator[MakeBatcher]:
    made = []

    def make(**parameters: Any) -> Batcher:
        made.append(
            Batcher(
                recorder,
                BatchingParameters(**{"batch_timeout_micros": WAIT_MICROS, **parameters}),
                threading.Semaphore(2),
            )
        )
        return made[-1]

    yield make
    for batcher in made:
        batcher.close()


def call(batcher: Batcher, value: object, signature: str = "serving_default", timeout_s: float | None = None) -> object:
    """Return the output as a list, or the error as text."""
    array = np.asarray(value)
    signature_def = batcher.signatures[signature]
    (source,), (target,) = signature_def.inputs.values(), signature_def.outputs.values()
    dtype = next(row for row in dtypes.BY_NUMBER.values() if row.numpy == array.dtype)
    try:
        (tensor,) = batcher.run({source.name: Tensor(array, dtype)}, [target.name], RequestContext(timeout_s=timeout_s))
    except StatusError as error:
        return str(error)
    return tensor.array.tolist()


def call_together(batcher: Batcher, *values: object, signature: str = "serving_default") -> list[object]:
    with ThreadPoolExecutor(len(values)) as pool:
        return list(pool.map(lambda value: call(batcher, value, signature), values))


def test_concurrent_requests_share_one_run(make_batcher: MakeBatcher, recorder: RecordingRuntime) -> None:
    batcher = make_batcher(max_batch_size=6)
    results = call_together(batcher, np.float32([[1.0]]), np.float32([[2.0], [3.0]]), np.float32([[4.0], [5.0], [6.0]]))
    assert [[[2.5]], [[3.0], [3.5]], [[4.0], [4.5], [5.0]]] == results
    assert [(6, 1)] == [run["x:0"].shape for run in recorder.runs]


def test_requests_for_other_outputs_are_another_batch(make_batcher: MakeBatcher, recorder: RecordingRuntime) -> None:
    batcher = make_batcher(max_batch_size=2, batch_timeout_micros=SHORT_WAIT_MICROS)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(call, batcher, np.float32([[1.0]]))
        second = pool.submit(call, batcher, np.float32([[1.0]]), "width")
    assert ([[2.5]], [1]) == (first.result(), second.result())
    assert 2 == len(recorder.runs)


def test_a_batch_is_padded_to_an_allowed_size(make_batcher: MakeBatcher, recorder: RecordingRuntime) -> None:
    batcher = make_batcher(max_batch_size=8, allowed_batch_sizes=(2, 4, 8), batch_timeout_micros=0)
    assert [[2.5], [3.0], [3.5]] == call(batcher, np.float32([[1.0], [2.0], [3.0]]))
    assert [[[1.0], [2.0], [3.0], [1.0]]] == [run["x:0"].tolist() for run in recorder.runs]


def test_tensors_are_padded_to_the_largest_with_their_first_value(
    make_batcher: MakeBatcher, recorder: RecordingRuntime
) -> None:
    batcher = make_batcher(max_batch_size=2, pad_variable_length_inputs=True)
    assert [[[2.5, 2.5, 2.5]], [[3.0, 3.5, 4.0]]] == call_together(
        batcher, np.float32([[1.0]]), np.float32([[2.0, 3.0, 4.0]])
    )
    assert 1 == len(recorder.runs)


def test_strings_are_padded(make_batcher: MakeBatcher) -> None:
    batcher = make_batcher(max_batch_size=2, pad_variable_length_inputs=True)
    rows = np.array([[b"a"]], object), np.array([[b"b", b"c"]], object)
    assert [[[b"a", b"a"]], [[b"b", b"c"]]] == call_together(batcher, *rows, signature="text")


def test_different_shapes_run_separately_without_padding(make_batcher: MakeBatcher) -> None:
    batcher = make_batcher(max_batch_size=2)
    assert [[[2.5]], [[3.0, 3.5]]] == call_together(batcher, np.float32([[1.0]]), np.float32([[2.0, 3.0]]))


def test_different_ranks_and_types_run_separately(make_batcher: MakeBatcher, recorder: RecordingRuntime) -> None:
    batcher = make_batcher(max_batch_size=3, pad_variable_length_inputs=True)
    results = call_together(batcher, np.float32([[1.0]]), np.float32([2.0]), np.int32([[1]]))
    assert [[[2.5]], [3.0], "INVALID_ARGUMENT: Expects arg[0] to be float but int32 is provided"] == results
    assert 3 == len(recorder.runs)


def test_only_the_requests_that_cause_an_error_get_it(make_batcher: MakeBatcher, recorder: RecordingRuntime) -> None:
    batcher = make_batcher(max_batch_size=8)
    before = REGISTRY.get_sample_value("bakery_halved_batches_total") or 0.0
    values = (1, 2, 0, 1, 2, 1, 2, 1)
    results = call_together(batcher, *([np.int32([value]) for value in values]), signature="boom")
    for value, result in zip(values, results, strict=True):
        if value:
            assert [1 // value] == result
        else:
            assert str(result).startswith("INVALID_ARGUMENT: Integer division by zero")
    assert before + 3 == REGISTRY.get_sample_value("bakery_halved_batches_total")
    assert [8, 4, 4, 2, 2, 1, 1] == sorted((len(next(iter(run.values()))) for run in recorder.runs), reverse=True)


@pytest.mark.parametrize("failure", [StatusError, MemoryError])
def test_each_request_gets_its_own_error(
    make_batcher: MakeBatcher, recorder: RecordingRuntime, monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    """And no run begins while an error is handled, whose text it would take for its own."""
    handled = []

    def run(feeds: dict[str, Tensor], *_: object) -> list[Tensor]:
        handled.append(sys.exc_info()[0])
        rows = next(iter(feeds.values())).array
        if len(rows) > 1 and failure is MemoryError:
            raise MemoryError
        raise StatusError(Code.RESOURCE_EXHAUSTED, str(rows.tolist()))

    monkeypatch.setattr(recorder, "run", run)
    results = call_together(make_batcher(max_batch_size=4), *(np.float32([value]) for value in range(4)))
    assert [f"RESOURCE_EXHAUSTED: [{value}.0]" for value in range(4)] == results
    assert [None] * 7 == handled


def test_a_batch_that_takes_too_long_is_not_repeated(
    make_batcher: MakeBatcher, recorder: RecordingRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object) -> list[Tensor]:
        recorder.runs.append({})
        raise StatusError(Code.DEADLINE_EXCEEDED, "Timed out")

    monkeypatch.setattr(recorder, "run", run)
    results = call_together(make_batcher(max_batch_size=2), np.float32([1]), np.float32([2]))
    assert ["DEADLINE_EXCEEDED: Timed out"] * 2 == results
    assert 1 == len(recorder.runs)


@pytest.mark.parametrize(
    ("value", "signature", "message"),
    [
        (
            np.float32(1.0),
            "serving_default",
            "INVALID_ARGUMENT: Batching Run() input tensors must have at least one dimension",
        ),
        (
            np.zeros([5, 1], np.float32),
            "serving_default",
            "INVALID_ARGUMENT: Task size 5 is larger than maximum input batch size 4",
        ),
        (np.zeros([2, 1], np.float32), "total", "FAILED_PRECONDITION: Batched output tensor has 0 dimensions"),
        (
            np.zeros([3, 1], np.float32),
            "shape",
            "FAILED_PRECONDITION: Batched output tensor's 0th dimension does not equal the sum of the 0th dimension "
            "sizes of the input tensors",
        ),
    ],
    ids=["scalar", "too large", "scalar output", "output of fixed size"],
)
def test_invalid_requests(make_batcher: MakeBatcher, value: np.ndarray, signature: str, message: str) -> None:
    batcher = make_batcher(max_batch_size=4, batch_timeout_micros=0)
    assert message == call(batcher, value, signature)


def test_too_many_rows_are_rejected_without_numbering_them(make_batcher: MakeBatcher) -> None:
    rows = np.broadcast_to(np.float32(1.0), [10**15])
    assert f"INVALID_ARGUMENT: Task size {10**15} is larger than maximum input batch size 1000" == call(
        make_batcher(), rows
    )


def test_all_inputs_must_have_the_same_number_of_rows(make_batcher: MakeBatcher) -> None:
    batcher = make_batcher()
    two = {name: Tensor(np.zeros(rows, np.float32), dtypes.BY_NAME["float"]) for name, rows in (("x:0", 2), ("k:0", 3))}
    with pytest.raises(StatusError, match="input tensors must have equal 0th-dimension size"):
        batcher.run(two, ["y:0"], RequestContext())
    with pytest.raises(StatusError, match="must have at least one input tensor"):
        batcher.run({}, ["y:0"], RequestContext())


def test_a_request_without_rows_does_not_wait(make_batcher: MakeBatcher) -> None:
    assert [] == call(make_batcher(batch_timeout_micros=10**9), np.zeros([0, 1], np.float32))


def test_a_large_request_is_split_if_that_is_enabled(make_batcher: MakeBatcher, recorder: RecordingRuntime) -> None:
    batcher = make_batcher(
        max_batch_size=7, enable_large_batch_splitting=True, max_execution_batch_size=3, batch_timeout_micros=0
    )
    rows = np.arange(7, dtype=np.float32).reshape(7, 1)
    assert (rows / 2 + 2).tolist() == call(batcher, rows)
    assert [3, 3, 1] == sorted((len(run["x:0"]) for run in recorder.runs), reverse=True)
    assert "INVALID_ARGUMENT: Task size 8 is larger than maximum input batch size 7" == call(
        batcher, np.zeros([8, 1], np.float32)
    )


def test_a_full_queue_rejects_further_requests(make_batcher: MakeBatcher, recorder: RecordingRuntime) -> None:
    batcher = make_batcher(max_batch_size=1, max_enqueued_batches=1, num_batch_threads=1, batch_timeout_micros=0)
    recorder.gate.clear()
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(call, batcher, np.float32([[1.0]]))]
        wait_until(lambda: len(recorder.runs) == 1)
        calls += [pool.submit(call, batcher, np.float32([[1.0]])) for _ in range(7)]
        wait_until(lambda: sum(call.done() for call in calls) == 6)
        rejected = [call for call in calls if call.done()]
        recorder.gate.set()
    assert {
        "UNAVAILABLE: The batch scheduling queue to which this task was submitted is full; currently 1 batches "
        "enqueued and max_enqueued_batches is 1"
    } == {str(call.result()) for call in rejected}
    assert [[[2.5]]] * 2 == [call.result() for call in calls if call not in rejected]


def test_a_request_that_waits_too_long_fails(make_batcher: MakeBatcher, recorder: RecordingRuntime) -> None:
    batcher = make_batcher(max_batch_size=8, batch_timeout_micros=SHORT_WAIT_MICROS)
    expected = "RESOURCE_EXHAUSTED: Run() timeout exceeded while waiting in batching queue"
    assert expected == call(batcher, np.float32([[1.0]]), timeout_s=SHORT_WAIT_MICROS / 1e6 / 4)
    assert [] == recorder.runs


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            BatchingParameters(max_batch_size=8, allowed_batch_sizes=(2, 4)),
            "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 4; expected 8",
        ),
        (
            BatchingParameters(max_batch_size=4, allowed_batch_sizes=(2, 2, 4)),
            "allowed_batch_sizes entries must be positive and monotonically increasing; were 2, 2, 4",
        ),
        (
            BatchingParameters(max_batch_size=4, enable_large_batch_splitting=True, max_execution_batch_size=8),
            "max_execution_batch_size must not exceed max_batch_size; was 8, with 4",
        ),
    ],
    ids=["last size", "order", "pieces larger than requests"],
)
def test_contradictory_sizes_fail_the_load(half_plus_two: Path, parameters: BatchingParameters, message: str) -> None:
    options = LoadOptions(batching=Batching(parameters, per_model=False, slots=threading.Semaphore(1)))
    with pytest.raises(StatusError) as error:
        load("m", 1, half_plus_two / "1", options)
    assert f"INVALID_ARGUMENT: {message}" == str(error.value)


def test_with_per_model_parameters_each_version_has_its_own(tmp_path: Path) -> None:
    slots = threading.Semaphore(1)
    options = LoadOptions(batching=Batching(BatchingParameters(max_batch_size=9), per_model=True, slots=slots))
    path = model_makers.half_plus(tmp_path, 1)
    one, three = ({"x:0": Tensor(np.zeros(rows, np.float32), dtypes.BY_NAME["float"])} for rows in (1, 3))
    unbatched = load("m", 1, path, options)
    assert isinstance(unbatched.runtime, SavedModel)
    unbatched.close()
    (path / FILE_IN_VERSION).write_text("max_batch_size { value: 2 }")
    batched = load("m", 1, path, options)
    assert [2.0] == batched.runtime.run(one, ["y:0"], RequestContext())[0].array.tolist()
    with pytest.raises(StatusError, match="Task size 3 is larger than maximum input batch size 2"):
        batched.runtime.run(three, ["y:0"], RequestContext())
    batched.close()
    (path / FILE_IN_VERSION).write_text("max_batch_size: 2")
    with pytest.raises(StatusError, match="Invalid protobuf file"):
        load("m", 1, path, options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_batch_threads { value: 0 }", "num_batch_threads must be positive; was 0"),
        ("num_batch_threads { value: 65537 }", "invalid num_batch_threads 65537: must be at most 65536"),
        ("num_batch_threads { value: 2147483647 }", "invalid num_batch_threads 2147483647: must be at most 65536"),
        ("max_batch_size { value: 2147483648 }", "invalid max_batch_size 2147483648: must be at most 2147483647"),
        ("max_enqueued_batches { value: -1 }", "max_enqueued_batches must be non-negative; was -1"),
    ],
)
def test_parameters_out_of_range_end_the_start(half_plus_two: Path, tmp_path: Path, text: str, message: str) -> None:
    parameters = tmp_path / "batching.config"
    parameters.write_text(text)
    flags = (f"--model_base_path={half_plus_two}", "--enable_batching", f"--batching_parameters_file={parameters}")
    server = ServerProcess(*flags, log=tmp_path / "log", wait=False)
    assert 255 == server.process.wait(30)
    assert f"Failed to start server. Error: INVALID_ARGUMENT: {message}\n" in (tmp_path / "log").read_text()
