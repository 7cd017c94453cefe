"""A TF Lite model, run by interpreters that take turns, as an interpreter serves one call at a time."""

from __future__ import annotations

import os
import queue
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from flatbuffers import flexbuffers
from google.protobuf.message import DecodeError
from tensorflow.lite.python import schema_py_generated as lite_schema

from savedmodel_bakery.wire import dtypes, schema
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor

# The metadata entry with SignatureDefs by key, serialized, in a FlexBuffer (tensorflow/lite/tools/signature).
_SIGNATURES_ENTRY = b"signature_defs_metadata"
# Dimensions that XNNPACK has room for (XNN_MAX_TENSOR_DIMS); it writes beyond it, and the process ends, for more.
_MOST_DIMENSIONS = 6


class _Port(NamedTuple):
    """An input or output of an interpreter."""

    place: int
    dtype: DType
    shape: tuple[int, ...]


class TfLiteModel:
    """A loaded `model.tflite`; see `Runtime`. Inputs are resized to what is fed."""

    def __init__(self, path: Path, *, interpreters: int = 0) -> None:
        """Load a file.

        Args:
            path: of the file.
            interpreters: calls that run at the same time, each with memory of its own; 0 is one a CPU.

        Raises:
            StatusError: it is no model, has operations that the interpreter lacks, or its signatures name tensors
                that aren't there.
        """
        try:
            self._content = path.read_bytes()
        except OSError as error:
            raise StatusError(Code.DATA_LOSS, str(error)) from error
        self._places = threading.Semaphore(interpreters or os.cpu_count() or 1)
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        first = self._interpreter()
        self._idle.put(first)
        self._inputs = {detail["name"]: _port(detail) for detail in first.get_input_details()}
        self._outputs = {detail["name"]: _port(detail) for detail in first.get_output_details()}
        self.signatures: dict[str, Any] = self._read_signatures() or {
            tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: self._whole()
        }

    def run(
        self, feeds: Mapping[str, Tensor], fetches: Sequence[str], *, timeout_s: float | None = None
    ) -> list[Tensor]:
        """See `Runtime.run`; the limit is one of the wait for an interpreter, as a run can't be stopped."""
        inputs = [_find(self._inputs, name) for name in feeds]
        outputs = [_find(self._outputs, name) for name in fetches]
        for number, (port, tensor) in enumerate(zip(inputs, feeds.values(), strict=True)):
            if tensor.dtype is not port.dtype:
                raise invalid_argument(
                    f"Expects arg[{number}] to be {port.dtype.name} but {tensor.dtype.name} is provided"
                )
            _check_rank(port, tensor, number)
        if not self._places.acquire(timeout=timeout_s):
            raise StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for an interpreter")
        try:
            interpreter = self._take()
            try:
                return _invoke(interpreter, inputs, [tensor.array for tensor in feeds.values()], outputs)
            finally:
                self._idle.put(interpreter)
        finally:
            self._places.release()

    def close(self) -> None:
        """See `Runtime.close`."""
        while not self._idle.empty():
            self._idle.get()

    def _take(self) -> Any:
        """An interpreter that is idle, or a new one; there are never more than places."""
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return self._interpreter()

    def _interpreter(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it tells of a package that is to take its place one day
            try:
                return tf.lite.Interpreter(model_content=self._content, num_threads=1)
            except (RuntimeError, ValueError) as error:
                raise invalid_argument(f"the TF Lite model cannot be loaded: {error}") from error

    def _read_signatures(self) -> dict[str, Any]:
        """Signatures that the file holds; empty where it holds none.

        Raises:
            StatusError: they can't be read, or name tensors that aren't there.
        """
        model = lite_schema.Model.GetRootAs(self._content, 0)
        entries = [model.Metadata(place) for place in range(model.MetadataLength())]
        found = [entry for entry in entries if entry.Name() == _SIGNATURES_ENTRY]
        if not found:
            return {}
        try:
            entry = flexbuffers.GetRoot(model.Buffers(found[0].Buffer()).DataAsNumpy().tobytes()).AsMap
            signatures = {
                key.AsKey: schema.SignatureDef.FromString(value.AsStringBytes)
                for key, value in zip(entry.Keys, entry.Values, strict=True)
            }
        except (AttributeError, DecodeError, TypeError, ValueError) as error:
            raise invalid_argument(f"the signatures of the TF Lite model cannot be read: {error}") from error
        for signature in signatures.values():
            for infos, ports in ((signature.inputs, self._inputs), (signature.outputs, self._outputs)):
                for info in infos.values():
                    info.name = _known_name(info.name, ports)
        return signatures

    def _whole(self) -> Any:
        """One signature over all inputs and outputs, each by its tensor's name up to the first colon."""
        signature = schema.SignatureDef(method_name=tf.saved_model.PREDICT_METHOD_NAME)
        for infos, ports in ((signature.inputs, self._inputs), (signature.outputs, self._outputs)):
            for name, port in ports.items():
                info = infos[name.partition(":")[0]]
                info.name, info.dtype = name, port.dtype.number
                info.tensor_shape.SetInParent()
                for size in port.shape:
                    info.tensor_shape.dim.add(size=size)
        return signature


def _port(detail: Mapping[str, Any]) -> _Port:
    dtype = dtypes.STRING if detail["dtype"] is np.bytes_ else dtypes.of_array(np.empty(0, detail["dtype"]))
    return _Port(detail["index"], dtype, tuple(int(size) for size in detail["shape_signature"]))


def _known_name(name: str, ports: Mapping[str, _Port]) -> str:
    """The name of a tensor, whose `:0` the converter may have dropped."""
    for candidate in (name, name.removesuffix(":0")):
        if candidate in ports:
            return candidate
    raise StatusError(Code.INTERNAL, f"Unknown tensor '{name}'.")


def _find(ports: Mapping[str, _Port], name: str) -> _Port:
    try:
        return ports[name]
    except KeyError:
        raise invalid_argument(f"Tensor {name} was not found in the model; it has {', '.join(sorted(ports))}") from None


def _check_rank(port: _Port, tensor: Tensor, number: int) -> None:
    """Refuse a rank that an input doesn't have, which no resize checks and a later one crashes upon.

    The file of an input of unknown rank gives it no dimensions, like that of a scalar.
    """
    allowed = str(len(port.shape)) if port.shape else f"up to {_MOST_DIMENSIONS}"
    given = len(tensor.array.shape if tensor.shape is None else tensor.shape)
    if given != len(port.shape) if port.shape else given > _MOST_DIMENSIONS:
        raise invalid_argument(f"Expects arg[{number}] to have {allowed} dimensions but {given} are provided")


def _invoke(
    interpreter: Any, inputs: Sequence[_Port], arrays: Sequence[np.ndarray], outputs: Sequence[_Port]
) -> list[Tensor]:
    try:
        for port, array in zip(inputs, arrays, strict=True):
            interpreter.resize_tensor_input(port.place, array.shape)
        interpreter.allocate_tensors()
        for port, array in zip(inputs, arrays, strict=True):
            interpreter.set_tensor(port.place, array)
        interpreter.invoke()
        found = [np.asarray(interpreter.get_tensor(port.place)) for port in outputs]
    except (RuntimeError, ValueError) as error:
        raise invalid_argument(str(error)) from error
    return [
        Tensor(array.astype(object) if port.dtype is dtypes.STRING else array, port.dtype)
        for array, port in zip(found, outputs, strict=True)
    ]
