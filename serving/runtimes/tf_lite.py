"""A TF Lite model, run by a pool of interpreters, as an interpreter runs one call at a time."""

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
from tensorflow.lite.python.schema_py_generated import Model

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.wire import dtypes, schema
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor

# The metadata entry with serialized SignatureDefs by name, in a FlexBuffer (tensorflow/lite/tools/signature).
_SIGNATURES_ENTRY = b"signature_defs_metadata"
# XNNPACK has room for this many dimensions (XNN_MAX_TENSOR_DIMS); with more it writes out of bounds and crashes.
_MAX_DIMENSIONS = 6
_MAX_SHAPES = 10_000  # that are remembered


class _Port(NamedTuple):
    """An input or output of an interpreter."""

    number: int
    dtype: DType
    shape: tuple[int, ...]


class TfLiteModel:
    """A loaded `model.tflite`; see `Runtime`. Inputs are resized to the shapes of the feeds."""

    def __init__(self, path: Path, *, interpreters: int = 0) -> None:
        """Load a file.

        As many calls run at the same time as there are interpreters, each with its own memory; 0 for one per CPU.

        Raises:
            StatusError: the file is not a TF Lite model, needs operations that the interpreter lacks, or has
                signatures that name unknown tensors.
        """
        try:
            self._content = path.read_bytes()
        except OSError as error:
            raise StatusError(Code.DATA_LOSS, str(error)) from error
        self._slots = threading.Semaphore(interpreters or os.cpu_count() or 1)
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        first = self._new_interpreter()
        self._idle.put(first)
        self._allocated: set[tuple[tuple[int, ...], ...]] = set()
        self._inputs = {detail["name"]: _port(detail) for detail in first.get_input_details()}
        self._outputs = {detail["name"]: _port(detail) for detail in first.get_output_details()}
        self.signatures: dict[str, Any] = self._read_signatures() or {
            tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: self._default_signature()
        }

    def run(self, feeds: Mapping[str, Tensor], fetches: Sequence[str], context: RequestContext) -> list[Tensor]:
        """See `Runtime.run`; the deadline ends the wait for an interpreter, but TF Lite cannot interrupt a run."""
        inputs = [self._inputs[name] for name in feeds]
        outputs = [self._outputs[name] for name in fetches]
        for number, (port, tensor) in enumerate(zip(inputs, feeds.values(), strict=True)):
            if tensor.dtype is not port.dtype:
                raise invalid_argument(
                    f"Expects arg[{number}] to be {port.dtype.name} but {tensor.dtype.name} is provided"
                )
            _check_shape(port, tensor, number)
        if not self._slots.acquire(timeout=context.remaining_s()):
            raise StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for an interpreter")
        try:
            context.check()
            arrays = [_fitted(port, tensor.array) for port, tensor in zip(inputs, feeds.values(), strict=True)]
            if not _suits_xnnpack(inputs, arrays):
                return _invoke(self._new_interpreter(xnnpack=False), inputs, arrays, outputs)
            self._try_shapes(inputs, arrays)
            interpreter = self._idle_interpreter()
            results = _invoke(interpreter, inputs, arrays, outputs)
            self._idle.put(interpreter)  # not after a failure, which may leave it damaged
            return results
        finally:
            self._slots.release()

    def close(self) -> None:
        """See `Runtime.close`."""
        while not self._idle.empty():
            self._idle.get()

    def _idle_interpreter(self) -> Any:
        """Return an idle interpreter or a new one; there are never more than slots."""
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return self._new_interpreter()

    def _try_shapes(self, inputs: Sequence[_Port], arrays: Sequence[np.ndarray]) -> None:
        """Check once without XNNPACK that the model can have these shapes: XNNPACK does not check what it computes."""
        shapes = tuple(array.shape for array in arrays)
        if shapes in self._allocated:
            return
        _allocate(self._new_interpreter(xnnpack=False), inputs, arrays)
        if len(self._allocated) < _MAX_SHAPES:
            self._allocated.add(shapes)

    def _new_interpreter(self, *, xnnpack: bool = True) -> Any:
        resolver = tf.lite.experimental.OpResolverType
        operations = resolver.AUTO if xnnpack else resolver.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a deprecation warning
            try:
                return tf.lite.Interpreter(
                    model_content=self._content, num_threads=1, experimental_op_resolver_type=operations
                )
            except (RuntimeError, ValueError) as error:
                raise invalid_argument(f"the TF Lite model cannot be loaded: {error}") from error

    def _read_signatures(self) -> dict[str, Any]:
        """Return the signatures in the file by name; empty if it has none."""
        content = _read_metadata(self._content, _SIGNATURES_ENTRY)
        if content is None:
            return {}
        try:
            entry = flexbuffers.GetRoot(content).AsMap
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

    def _default_signature(self) -> Any:
        """Return a signature of all inputs and outputs; an alias is the tensor's name up to the first colon."""
        signature = schema.SignatureDef(method_name=tf.saved_model.PREDICT_METHOD_NAME)
        for infos, ports in ((signature.inputs, self._inputs), (signature.outputs, self._outputs)):
            for name, port in ports.items():
                info = infos[name.partition(":")[0]]
                info.name, info.dtype = name, port.dtype.number
                info.tensor_shape.SetInParent()
                for size in port.shape:
                    info.tensor_shape.dim.add(size=size)
        return signature


def _read_metadata(content: bytes, name: bytes) -> bytes | None:
    """Return a metadata entry of a TF Lite file; None if it has no entry with this name."""
    model = Model.GetRootAs(content)
    for entry in map(model.Metadata, range(model.MetadataLength())):
        if entry.Name() == name:
            buffer = model.Buffers(entry.Buffer())
            return bytes(buffer.DataAsNumpy()) if buffer.DataLength() else b""
    return None


def _port(detail: Mapping[str, Any]) -> _Port:
    dtype = dtypes.STRING if detail["dtype"] is np.bytes_ else dtypes.of_array(np.empty(0, detail["dtype"]))
    return _Port(detail["index"], dtype, tuple(int(size) for size in detail["shape_signature"]))


def _known_name(name: str, ports: Mapping[str, _Port]) -> str:
    """Return the name of a tensor; the converter may have dropped its `:0`."""
    for candidate in (name, name.removesuffix(":0")):
        if candidate in ports:
            return candidate
    raise StatusError(Code.INTERNAL, f"Unknown tensor '{name}'.")


def _check_shape(port: _Port, tensor: Tensor, number: int) -> None:
    """Reject a shape with which TF Lite may read or write out of bounds: its operations rely on the sizes in the file.

    As in the real server, a single number fits where all sizes are 1, and a vector fits a column of numbers. An input
    of unknown rank, which in the file has no dimensions, like a scalar, takes any shape.
    """
    shape = tensor.array.shape if tensor.shape is None else tensor.shape
    if not tensor.array.size:  # some operations read and write beyond it
        sizes = ",".join(map(str, shape))
        raise invalid_argument(f"Expects arg[{number}] to have elements but shape [{sizes}] is provided")
    is_number = _is_number(port, tensor.array)
    is_column = _is_single(port) and len(port.shape) in (1, 2)  # a batch of numbers: [n] or [n, 1]
    if not port.shape or is_column or (is_number and _is_single(port)):
        if len(shape) > _MAX_DIMENSIONS:
            raise invalid_argument(
                f"Expects arg[{number}] to have up to {_MAX_DIMENSIONS} dimensions but {len(shape)} are provided"
            )
        if is_number or not port.shape or len(shape) == 1 or shape[-1:] == (1,):
            return
    if len(shape) != len(port.shape):
        raise invalid_argument(
            f"Expects arg[{number}] to have {len(port.shape)} dimensions but {len(shape)} are provided"
        )
    if any(fixed not in (-1, size) for fixed, size in zip(port.shape, shape, strict=True)):
        declared = ",".join("?" if size == -1 else str(size) for size in port.shape)
        raise invalid_argument(
            f"Expects arg[{number}] to have shape [{declared}] but [{','.join(map(str, shape))}] is provided"
        )


def _is_number(port: _Port, array: np.ndarray) -> bool:
    return array.size == 1 and port.dtype is not dtypes.STRING


def _is_single(port: _Port) -> bool:
    return set(port.shape[:1]) <= {1, -1} and set(port.shape[1:]) <= {1}


def _suits_xnnpack(inputs: Sequence[_Port], arrays: Sequence[np.ndarray]) -> bool:
    """Return whether inputs have the ranks in the file, and batches as many rows; XNNPACK may crash with others."""
    has_ranks = all(len(port.shape) in (0, array.ndim) for port, array in zip(inputs, arrays, strict=True))
    rows = {array.shape[0] for port, array in zip(inputs, arrays, strict=True) if port.shape[:1] == (-1,)}
    return has_ranks and len(rows) <= 1


def _fitted(port: _Port, array: np.ndarray) -> np.ndarray:
    """Return a single number in the input's own shape, as the real server copies it without a change of the shape."""
    fits = _is_number(port, array) and port.shape and _is_single(port)
    return array.reshape([1] * len(port.shape)) if fits else array


def _allocate(interpreter: Any, inputs: Sequence[_Port], arrays: Sequence[np.ndarray]) -> None:
    try:
        for port, array in zip(inputs, arrays, strict=True):
            interpreter.resize_tensor_input(port.number, array.shape)
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        raise invalid_argument(str(error)) from error


def _invoke(
    interpreter: Any, inputs: Sequence[_Port], arrays: Sequence[np.ndarray], outputs: Sequence[_Port]
) -> list[Tensor]:
    _allocate(interpreter, inputs, arrays)
    try:
        for port, array in zip(inputs, arrays, strict=True):
            interpreter.set_tensor(port.number, array)
        interpreter.invoke()
        results = [np.asarray(interpreter.get_tensor(port.number)) for port in outputs]
    except (RuntimeError, ValueError) as error:
        raise invalid_argument(str(error)) from error
    return [
        Tensor(array.astype(object) if port.dtype is dtypes.STRING else array, port.dtype)
        for array, port in zip(results, outputs, strict=True)
    ]
