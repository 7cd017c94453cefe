"""The file that runs a signature in Triton's Python backend, with a stand-in for the backend's module.

A system test runs it on a real tritonserver.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import model_makers
import numpy as np
import pytest

Array = np.ndarray


class Tensor:
    def __init__(self, name: str, array: Array) -> None:
        self.name, self.array = name, array

    def as_numpy(self) -> Array:
        return self.array


class Request:
    def __init__(self, inputs: dict[str, Array], outputs: list[str]) -> None:
        self.inputs, self.outputs = inputs, outputs

    def requested_output_names(self) -> list[str]:
        return self.outputs


class Response:
    def __init__(self, output_tensors: list[Tensor] | None = None, error: Any = None) -> None:
        self.outputs = {tensor.name: tensor.array for tensor in output_tensors or []}
        self.error = error


class TritonError(Exception):
    INTERNAL, INVALID_ARG, NOT_FOUND, UNAVAILABLE, UNSUPPORTED = range(5)

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module model.py."""
    backend = ModuleType("triton_python_backend_utils")
    vars(backend).update(
        Tensor=Tensor,
        InferenceResponse=Response,
        TritonError=TritonError,
        get_input_tensor_by_name=lambda request, name: Tensor(name, request.inputs[name]),
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)
    name = "savedmodel_bakery.exporter.triton.model"
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


@pytest.fixture
def load(module: ModuleType, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Load a signature of a SavedModel as the backend does."""
    models = []

    def load(make: Callable[[Path], Path], signature: str = "serving_default") -> Any:
        (tmp_path / "repository" / "1").mkdir(parents=True)
        make(tmp_path).rename(tmp_path / "repository" / "1" / "saved_model")
        config = {
            "instance_group": [{"count": 1}],
            "parameters": {"signature_name": {"string_value": signature}},
        }
        model = module.TritonPythonModel()
        model.initialize(
            {
                "model_config": json.dumps(config),
                "model_repository": str(tmp_path / "repository"),
                "model_version": "1",
                "model_instance_kind": "CPU",
                "model_instance_device_id": "0",
            }
        )
        models.append(model)
        return model

    yield load
    for model in models:
        model.finalize()


def requests(name: str, *rows: list[Any], dtype: Any, output: str) -> list[Request]:
    return [Request({name: np.array(row, dtype)}, [output]) for row in rows]


def half_plus_two(folder: Path) -> Path:
    return model_makers.half_plus(folder / "half_plus_two", 1)


def test_requests_that_triton_joined_are_answered_in_one_run(load: Callable[..., Any]) -> None:
    model = load(half_plus_two)
    runs = []
    run = model._signature.run
    model._signature.run = lambda call: runs.append(call) or run(call)
    responses = model.execute(requests("x", [2.0], [4.0, 6.0], [8.0], dtype=np.float32, output="y"))
    assert [[3.0], [4.0, 5.0], [6.0]] == [response.outputs["y"].tolist() for response in responses]
    assert 1 == len(runs)


def test_each_request_gets_the_outputs_that_it_asks_for(load: Callable[..., Any]) -> None:
    model = load(half_plus_two, "two")
    inputs = {"a": np.array([5.0], np.float32), "b": np.array([3.0], np.float32)}
    responses = model.execute([Request(inputs, ["diff"]), Request(inputs, ["sum", "diff"])])
    assert [{"diff": [2.0]}, {"sum": [8.0], "diff": [2.0]}] == [
        {name: array.tolist() for name, array in response.outputs.items()} for response in responses
    ]


def test_a_request_that_fails_does_not_fail_those_it_was_joined_with(load: Callable[..., Any]) -> None:
    model = load(model_makers.batched, "boom")
    first, bad, last = model.execute(requests("m", [1], [0], [1], dtype=np.int32, output="d"))
    assert ([1], [1]) == (first.outputs["d"].tolist(), last.outputs["d"].tolist())
    assert (TritonError.INVALID_ARG, {}) == (bad.error.code, bad.outputs)
    assert str(bad.error).startswith("Integer division by zero")


def test_an_output_without_rows_is_never_shared(load: Callable[..., Any]) -> None:
    model = load(model_makers.batched, "total")
    responses = model.execute(requests("x", [1.0], [2.0, 3.0], dtype=np.float32, output="total"))
    assert [[1.0], [5.0]] == [response.outputs["total"].tolist() for response in responses]


def test_arrays_of_one_element_stand_for_scalars(load: Callable[..., Any]) -> None:
    (response,) = load(half_plus_two, "slow").execute(requests("n", [3], dtype=np.int32, output="v"))
    assert [3.0] == response.outputs["v"].tolist()


def test_a_wrong_shape_is_the_error_of_its_request(load: Callable[..., Any]) -> None:
    (response,) = load(half_plus_two).execute(requests("x", [[1.0]], dtype=np.float32, output="y"))
    assert TritonError.INVALID_ARG == response.error.code


def test_instances_share_the_cpus_and_keep_to_their_gpu(module: ModuleType) -> None:
    cpus = len(os.sched_getaffinity(0))
    config = {"instance_group": [{"count": 2}, {"count": cpus}]}
    session = module._session_config(config, kind="CPU", device="0")
    assert (1, 1, {"GPU": 0}) == (
        session.intra_op_parallelism_threads,
        session.inter_op_parallelism_threads,
        dict(session.device_count),
    )
    session = module._session_config({"instance_group": [{"count": 1}]}, kind="GPU", device="1")
    assert (cpus, "1", True, {}) == (
        session.intra_op_parallelism_threads,
        session.gpu_options.visible_device_list,
        session.gpu_options.allow_growth,
        dict(session.device_count),
    )
