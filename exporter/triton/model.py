"""Runs one signature of a SavedModel in the Python backend of NVIDIA Triton.

`bakery triton` copies this file into the folder of a model's version, beside the folder `saved_model`. It needs
TensorFlow and NumPy, and nothing else of savedmodel-bakery. The signature's name is a parameter in config.pbtxt.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import triton_python_backend_utils as triton  # provided by the backend

with contextlib.suppress(ImportError):
    import tensorflow_text  # noqa: F401 - registers its operations, which models may use if it is installed

tf.get_logger().setLevel("ERROR")  # the only way to load into a Session is deprecated

Arrays = Mapping[str, np.ndarray]

# Errors of a run, which belong to a request. Session.run raises ValueError for a shape that the signature lacks.
_RUN_ERRORS = (tf.errors.OpError, ValueError)


class Call(NamedTuple):
    """The inputs of a request by name, and the names of the outputs that it asks for."""

    inputs: Arrays
    outputs: Collection[str]


class Signature:
    """A signature of a SavedModel, loaded into a Session as tensorflow_model_server loads it."""

    def __init__(self, saved_model: Path, name: str, session_config: Any) -> None:
        graph = tf.Graph()
        with graph.as_default():
            self._session = tf.compat.v1.Session(graph=graph, config=session_config)
            loaded = tf.compat.v1.saved_model.load(self._session, [tf.saved_model.SERVING], str(saved_model))
        definition = loaded.signature_def[name]
        self.inputs = {alias: graph.get_tensor_by_name(info.name) for alias, info in definition.inputs.items()}
        self._outputs = {alias: graph.get_tensor_by_name(info.name) for alias, info in definition.outputs.items()}

    def run(self, call: Call) -> dict[str, np.ndarray]:
        """Return the outputs of a call; raises `_RUN_ERRORS`.

        Triton has no scalars: arrays of one element stand for them.
        """
        feeds = {
            tensor: call.inputs[alias].reshape(()) if tensor.shape.rank == 0 else call.inputs[alias]
            for alias, tensor in self.inputs.items()
        }
        values = self._session.run({alias: self._outputs[alias] for alias in call.outputs}, feeds)
        return {alias: _to_array(value) for alias, value in values.items()}

    def close(self) -> None:
        """Release the model."""
        self._session.close()


class TritonPythonModel:
    """The class that the backend instantiates, in a process per instance."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the SavedModel; an exception keeps Triton from serving the version."""
        config = json.loads(args["model_config"])
        self._signature = Signature(
            Path(args["model_repository"], args["model_version"], "saved_model"),
            config["parameters"]["signature_name"]["string_value"],
            _session_config(config, kind=args["model_instance_kind"], device=args["model_instance_device_id"]),
        )

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer the requests that Triton has joined: all in one run, or each in a run of its own if that fails."""
        calls = [self._call(request) for request in requests]
        joined = self._run_joined(calls) if len(calls) > 1 else None
        return joined or [self._run_alone(call) for call in calls]

    def finalize(self) -> None:
        """Release the model."""
        self._signature.close()

    def _call(self, request: Any) -> Call:
        inputs = {name: triton.get_input_tensor_by_name(request, name).as_numpy() for name in self._signature.inputs}
        return Call(inputs, request.requested_output_names())

    def _run_alone(self, call: Call) -> Any:
        try:
            return _response(self._signature.run(call), call)
        except _RUN_ERRORS as error:
            return triton.InferenceResponse(error=_triton_error(error))

    def _run_joined(self, calls: Sequence[Call]) -> list[Any] | None:
        """Run the rows of all calls together; None if they must run separately.

        If the run fails, the fault may be in one of the requests only. If an output has another number of rows, it is
        unknown whose they are.
        """
        rows = [len(next(iter(call.inputs.values()))) for call in calls]
        try:
            outputs = self._signature.run(
                Call(
                    {name: np.concatenate([call.inputs[name] for call in calls]) for name in calls[0].inputs},
                    {name for call in calls for name in call.outputs},
                )
            )
        except _RUN_ERRORS:
            return None
        if any(len(array) != sum(rows) for array in outputs.values()):
            return None
        ends = np.cumsum(rows)
        return [
            _response({name: array[end - count : end] for name, array in outputs.items()}, call)
            for call, count, end in zip(calls, rows, ends, strict=True)
        ]


def _session_config(config: Mapping[str, Any], *, kind: str, device: str) -> Any:
    """Return the ConfigProto of an instance: its share of the CPUs, and its GPU if it has one."""
    instances = sum(group["count"] for group in config["instance_group"])
    cpus = max(1, len(os.sched_getaffinity(0)) // instances)
    session = tf.compat.v1.ConfigProto(
        allow_soft_placement=True, intra_op_parallelism_threads=cpus, inter_op_parallelism_threads=cpus
    )
    if kind == "GPU":
        session.gpu_options.visible_device_list = device
        session.gpu_options.allow_growth = True  # other instances share the GPU's memory
    else:
        session.device_count["GPU"] = 0
    return session


def _to_array(value: Any) -> np.ndarray:
    """Return a fetched value as an array; the Session returns a string scalar as bytes."""
    array = np.asarray(value, np.object_) if isinstance(value, bytes) else np.asarray(value)
    return array.reshape(1) if array.ndim == 0 else array


def _response(outputs: Arrays, call: Call) -> Any:
    return triton.InferenceResponse([triton.Tensor(name, outputs[name]) for name in call.outputs])


def _triton_error(error: Exception) -> Any:
    codes = {
        tf.errors.INVALID_ARGUMENT: triton.TritonError.INVALID_ARG,
        tf.errors.NOT_FOUND: triton.TritonError.NOT_FOUND,
        tf.errors.UNAVAILABLE: triton.TritonError.UNAVAILABLE,
        tf.errors.UNIMPLEMENTED: triton.TritonError.UNSUPPORTED,
    }
    if not isinstance(error, tf.errors.OpError):
        return triton.TritonError(str(error), triton.TritonError.INVALID_ARG)
    cause: Any = error
    while isinstance(cause.__context__, tf.errors.OpError):  # the first one lacks what Session.run adds to the message
        cause = cause.__context__
    return triton.TritonError(cause.message, codes.get(cause.error_code, triton.TritonError.INTERNAL))
