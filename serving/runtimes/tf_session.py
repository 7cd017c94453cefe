"""A SavedModel, loaded into a Session as tensorflow_model_server loads it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import op_def_registry

from savedmodel_bakery.serving.runtimes.unrepresentable_shapes import UnrepresentableShapeRunner
from savedmodel_bakery.wire import dtypes, schema
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor

with contextlib.suppress(ImportError):
    import tensorflow_text  # noqa: F401 - where it is installed, models may have its operations

tf.get_logger().setLevel("ERROR")  # it tells of loads that this module logs itself

# TensorFlow would take one a CPU, which answers a lone caller sooner, and two or more of them 8 to 40 % fewer images a
# second: what several threads share of an operation costs more than it saves.
_THREADS_WITHIN_OPERATION = max(1, (os.cpu_count() or 1) // 2)

# Handing a graph's operations to other threads, and waking those, takes 0.1 ms. In the caller's thread they run
# one after the other: that is for graphs of few operations, where none may wait for another or repeats others.
_SMALL_GRAPH_OPERATIONS = 256
_REPEATING = {"While", "_While", "StatelessWhile", "For", "Enter", "MapDefun"}
_STATEFUL_BUT_PROMPT = {
    *("Assert", "StatefulPartitionedCall"),
    *("HashTableV2", "InitializeTableFromTextFileV2", "InitializeTableV2", "LookupTableExportV2", "LookupTableFindV2"),
    *("LookupTableImportV2", "LookupTableSizeV2", "MergeV2Checkpoints", "RestoreV2", "SaveV2"),
    *("Assign", "AssignVariableOp", "DisableCopyOnRead", "ReadVariableOp", "ResourceGather"),
    *("VarHandleOp", "VarIsInitializedOp", "Variable", "VariableV2"),
}
_IN_CALLERS_THREAD, _IN_SESSIONS_THREADS = -1, 0  # RunOptions.inter_op_thread_pool

# The runtime marks quantised numbers by numpy types of its own.
_RUNTIME_TYPES = {row.number: np.dtype(tf.as_dtype(row.number).as_numpy_dtype) for row in dtypes.BY_NUMBER.values()}


class _Port(NamedTuple):
    """A tensor of the graph, as the runtime names it, and its element type."""

    handle: Any
    dtype: DType


@dataclass(frozen=True)
class SessionOptions:
    """How graphs are loaded and run; the flags of the same names.

    Attributes:
        tags: of the graph to load.
        config: a ConfigProto, serialized; without allow_soft_placement a graph made with a GPU needs one. The first
            graph in a process decides how many threads operations have.
    """

    tags: tuple[str, ...] = ("serve",)
    config: bytes = tf.compat.v1.ConfigProto(allow_soft_placement=True).SerializeToString()


class SavedModel:
    """A loaded graph; see `Runtime`. Threads that run it share one copy of the weights."""

    def __init__(self, path: Path, options: SessionOptions) -> None:
        """Load the folder `path`.

        Raises:
            StatusError: it can't be loaded, with tensorflow_model_server's reason.
        """
        _check_files(path)
        graph = tf.Graph()
        config = tf.compat.v1.ConfigProto.FromString(options.config)
        config.intra_op_parallelism_threads = config.intra_op_parallelism_threads or _THREADS_WITHIN_OPERATION
        # A second round of optimisation, and that by way of MLIR, take half the time of a signature's first run, and
        # made no network faster (EfficientNet-Lite0, InceptionV3).
        rewriting = config.graph_options.rewrite_options
        if rewriting.meta_optimizer_iterations == rewriting.DEFAULT_NUM_ITERS:
            rewriting.meta_optimizer_iterations = rewriting.ONE
        rewriting.disable_tfg_optimizer = True
        with graph.as_default():
            self._session = tf.compat.v1.Session(graph=graph, config=config)
            try:
                loaded = tf.compat.v1.saved_model.load(self._session, list(options.tags), str(path))
            except Exception as error:
                self._session.close()
                raise _load_error(error, path, options.tags) from error
        self._session._extend_graph()  # a graph without variables has not been run yet
        self._graph = graph
        self._vast = UnrepresentableShapeRunner(self._session, _find_tensor, _to_runtime)
        # TensorFlow's own message class is not the one the wire uses.
        self.signatures: dict[str, Any] = {
            key: schema.SignatureDef.FromString(signature.SerializeToString())
            for key, signature in loaded.signature_def.items()
        }
        self._ports: dict[str, _Port] = {}
        self._operations_threads = _IN_CALLERS_THREAD if _is_small(loaded.graph_def) else _IN_SESSIONS_THREADS

    def run(
        self, feeds: Mapping[str, Tensor], fetches: Sequence[str], *, timeout_s: float | None = None
    ) -> list[Tensor]:
        """See `Runtime.run`.

        TensorFlow keeps 0.7 kB of each run that fails under a limit, on purpose (core/framework/local_rendezvous.h).
        """
        fetched = [self._port(name) for name in fetches]
        self._check_feeds(feeds)
        options = tf.compat.v1.RunOptions(inter_op_thread_pool=self._operations_threads)
        if timeout_s is not None:
            options.timeout_in_ms = max(1, round(timeout_s * 1000))
        try:
            if any(tensor.shape is not None for tensor in feeds.values()):
                return self._vast.run(feeds, fetches, options)
            started = time.monotonic()
            found = self._run(feeds, fetched, options)
            # In the caller's thread TensorFlow looks at the clock only where an operation waits.
            if timeout_s is not None and time.monotonic() - started > timeout_s:
                raise StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")
        except tf.errors.OpError as error:
            raise StatusError(Code(error.error_code), error.message) from error
        return [_from_runtime(value, port.dtype) for value, port in zip(found, fetched, strict=True)]

    def close(self) -> None:
        """See `Runtime.close`."""
        self._session.close()

    def _run(self, feeds: Mapping[str, Tensor], fetched: Sequence[_Port], options: Any) -> list[Any]:
        """Session.run would refuse shapes that the real server takes, and costs more than a small model."""
        buffer = pywrap_tf_session.TF_NewBufferFromString(options.SerializeToString())
        try:
            found: list[Any] = self._session._call_tf_sessionrun(
                buffer,
                {self._port(name).handle: _to_runtime(tensor) for name, tensor in feeds.items()},
                [port.handle for port in fetched],
                [],
                None,
            )
            return found
        finally:
            pywrap_tf_session.TF_DeleteBuffer(buffer)

    def _check_feeds(self, feeds: Mapping[str, Tensor]) -> None:
        """Refuse what numpy can't hand over, in the runtime's own words (tensorflow/core/common_runtime)."""
        for place, (name, tensor) in enumerate(sorted(feeds.items())):
            if tensor.dtype.number not in dtypes.HANDLES:
                continue
            if tensor.dtype.name == "resource":
                handle = tensor.array.flat[0] if tensor.array.size else schema.ResourceHandleProto()
                raise invalid_argument(
                    f"Invalid resource type hash code: {handle.hash_code}(name: {handle.name} type: "
                    f"{handle.maybe_type_name}). Perhaps a resource tensor was being provided as a feed? That is not "
                    "currently allowed. Please file an issue at https://github.com/tensorflow/tensorflow/issues/new, "
                    "ideally with a short code snippet that leads to this error message."
                )
            raise invalid_argument(
                f"Expects arg[{place}] to be {self._port(name).dtype.name} but {tensor.dtype.name} is provided"
            )

    def _port(self, tensor_name: str) -> _Port:
        port = self._ports.get(tensor_name)
        if port is None:
            tensor = _find_tensor(self._graph, tensor_name)
            port = _Port(tensor._as_tf_output(), dtypes.of_number(tensor.dtype.base_dtype.as_datatype_enum))
            self._ports[tensor_name] = port
        return port


def _find_tensor(graph: Any, name: str) -> Any:
    """The graph's tensor NODE:N; NODE alone is its first."""
    node, _, place = name.partition(":")
    try:
        operation, index = graph.get_operation_by_name(node), int(place or 0)
    except (KeyError, ValueError) as error:
        raise invalid_argument(
            f"Tensor {name}, specified in either feed_devices or fetch_devices was not found in the Graph"
        ) from error
    if index >= len(operation.outputs):
        raise StatusError(
            Code.OUT_OF_RANGE,
            f"Node '{node}' (type: '{operation.type}', num of outputs: {len(operation.outputs)}) does not have "
            f"output {index}",
        )
    return operation.outputs[index]


def _to_runtime(tensor: Tensor) -> np.ndarray:
    runtime_type = _RUNTIME_TYPES[tensor.dtype.number]
    return tensor.array if tensor.array.dtype == runtime_type else tensor.array.view(runtime_type)


def _from_runtime(value: Any, dtype: DType) -> Tensor:
    # Scalars of strings come as bytes, those of numbers as numpy scalars.
    array = np.asarray(value, object) if isinstance(value, bytes) else np.asarray(value)
    return Tensor(array if array.dtype == dtype.numpy else array.view(dtype.numpy), dtype)


def _is_small(graph: Any) -> bool:
    """Whether a GraphDef gains by running in its caller's thread, and nothing in it may wait for another operation."""
    nodes = [*graph.node, *chain.from_iterable(function.node_def for function in graph.library.function)]
    operations = {node.op for node in nodes} - _STATEFUL_BUT_PROMPT
    known = [op_def_registry.get(name) for name in operations]
    return (
        len(nodes) <= _SMALL_GRAPH_OPERATIONS
        and operations.isdisjoint(_REPEATING)
        and not any(one is None or one.is_stateful for one in known)
    )


def _check_files(path: Path) -> None:
    if any((path / file).is_file() for file in ("saved_model.pb", "saved_model.pbtxt")):
        return
    if (path / "export.meta").is_file():
        raise StatusError(Code.UNIMPLEMENTED, "Session Bundle is deprecated and removed.")
    raise StatusError(
        Code.NOT_FOUND,
        "Specified file path does not appear to contain a SavedModel bundle (should have a file called "
        f"`saved_model.pb`)\nSpecified file path: {path}",
    )


def _load_error(error: Exception, path: Path, tags: Sequence[str]) -> StatusError:
    if isinstance(error, tf.errors.OpError):
        said = [each for each in _chain(error) if isinstance(each, tf.errors.OpError)][-1]  # before Python's own words
        return StatusError(Code(said.error_code), said.message)
    if isinstance(error, RuntimeError) and "MetaGraphDef associated with tags" in str(error):
        return StatusError(
            Code.NOT_FOUND,
            f"Could not find meta graph def matching supplied tags: {{ {' '.join(tags)} }}. To inspect available "
            "tag-sets in the SavedModel, please use the SavedModel CLI: `saved_model_cli`",
        )
    if isinstance(error, (OSError, UnicodeDecodeError)):
        file, kind = (
            ("saved_model.pb", "binary") if (path / "saved_model.pb").is_file() else ("saved_model.pbtxt", "text")
        )
        return StatusError(Code.DATA_LOSS, f"Can't parse {path / file} as {kind} proto")
    return StatusError(Code.INVALID_ARGUMENT, str(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, the one that it was raised over, and so on."""
    while error is not None:
        yield error
        error = error.__context__
