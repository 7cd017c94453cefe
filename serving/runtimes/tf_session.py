"""A SavedModel, loaded into a Session as tensorflow_model_server loads it."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.runtimes import graphs
from savedmodel_bakery.serving.runtimes.direct_session import IN_CALLERS_THREAD, DirectSession
from savedmodel_bakery.serving.runtimes.fetches import FetchLists, PreparedRun, UnrepresentableShapeRunner, find_port
from savedmodel_bakery.serving.runtimes.interruption import Interrupter
from savedmodel_bakery.wire import dtypes, schema, version_folder
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor, as_array

with contextlib.suppress(ImportError):
    import tensorflow_text  # noqa: F401 - registers its operations, which models may use if it is installed

tf.get_logger().setLevel("ERROR")  # the server logs loads itself

# TensorFlow's default is one thread per CPU, which is faster for a single caller; but with two or more callers the
# throughput is 8 to 40 % lower, because sharing an operation between threads has a cost.
_THREADS_WITHIN_OPERATION = max(1, (os.cpu_count() or 1) // 2)

_KEPT = 256  # prepared runs, and functions that run small graphs

# The runtime has its own numpy types for quantised numbers.
_RUNTIME_TYPES = {row.number: np.dtype(tf.as_dtype(row.number).as_numpy_dtype) for row in dtypes.BY_NUMBER.values()}


class SavedModel:
    """A loaded graph; see `Runtime`. All threads that run it share one copy of the weights.

    Attributes:
        row_bytes: the size of the largest tensor in the graph per row, as if all were float32; 0 if it reads no images.
    """

    def __init__(self, path: Path, *, tags: Sequence[str] = ("serve",), config: bytes | None = None) -> None:
        """Load the SavedModel in the folder `path`.

        `config` is a serialized ConfigProto. Without allow_soft_placement, a graph that was made on a GPU needs one.
        The first graph loaded in a process decides the number of threads per operation.

        Raises:
            StatusError: it cannot be loaded, with tensorflow_model_server's message.
        """
        _check_files(path)
        graph = tf.Graph()
        with graph.as_default():
            self._session = DirectSession(graph, _session_config(config))
            try:
                loaded = tf.compat.v1.saved_model.load(self._session.session, list(tags), str(path))
            except Exception as error:
                self._session.close()
                raise _load_error(error, path, tags) from error
        self._unrepresentable = UnrepresentableShapeRunner(self._session.session, _to_runtime)
        # TensorFlow's message classes differ from those of `wire`.
        self.signatures: dict[str, Any] = {
            key: schema.SignatureDef.FromString(signature.SerializeToString())
            for key, signature in loaded.signature_def.items()
        }
        self._fetch_lists = FetchLists(self.signatures)
        self._port = cache(partial(find_port, graph))
        self._prepared = lru_cache(_KEPT)(self._prepare)
        self._callable = lru_cache(_KEPT)(self._session.make_callable)
        nodes = graphs.list_nodes(loaded.graph_def)
        # Without a loop, nothing could end a run early.
        self._interrupter = Interrupter(self._session, graph) if graphs.has_loops(nodes) else None
        self._session.extend()
        self._reads_images = graphs.reads_images(loaded.graph_def)
        self.row_bytes = graphs.row_bytes(nodes) if self._reads_images else 0
        self._is_small = graphs.is_small(nodes) and not self._reads_images  # of these, the stages may be timed
        self._is_small_for_one_row = (
            self._reads_images
            and (path / version_folder.RECIPE).is_file()  # a pipeline may contain other models, with endless loops
            and not any(node.op == "BatchFunction" for node in nodes)
            and len(self._session.session.list_devices()) == 1
        )
        self._active_runs: list[RequestContext] = []
        self._stage_interval = 0
        self._run_numbers = itertools.count(1)
        self._record_stages: Callable[[float, float], None]

    def sample_stages(self, interval: int, record: Callable[[float, float], None]) -> None:
        """Time one in `interval` runs from now on, if it is a baked model.

        `record` takes the seconds of decoding and of the network.
        """
        if self._reads_images:
            self._stage_interval, self._record_stages = interval, record

    def run(self, feeds: Mapping[str, Tensor], fetches: Sequence[str], context: RequestContext) -> list[Tensor]:
        """See `Runtime.run`.

        TensorFlow deliberately leaks 0.7 kB per run that fails under a time limit (core/framework/local_rendezvous.h).
        """
        fed = tuple(feeds)
        prepared = self._prepared(fed, tuple(fetches))
        arrays, has_right_types, are_representable = [], True, True
        for tensor, port in zip(feeds.values(), prepared.feeds, strict=True):
            if tensor.dtype.number in dtypes.HANDLES:
                raise self._cannot_feed(feeds)
            arrays.append(_to_runtime(tensor))
            has_right_types &= tensor.dtype is port.dtype
            are_representable &= tensor.shape is None
        context.check()
        try:
            if not are_representable:
                tensors = self._unrepresentable.run(feeds, prepared.names, self._options(feeds, context))
                return [tensors[place] for place, _ in prepared.results]
            if self._is_small and has_right_types:  # which this function does not check
                outputs = self._callable(fed, prepared.names)(*arrays)
            else:
                outputs = self._run_arrays(prepared, arrays, self._options(feeds, context), context)
            context.check()
        except tf.errors.OpError as error:
            if context.is_cancelled:
                context.check()
            raise _run_error(error) from error
        except UnicodeDecodeError as error:
            # Of an error whose text is not valid UTF-8, TensorFlow's Python API only tells the text, not the code.
            raise invalid_argument(error.object.decode("utf-8", "surrogateescape")) from error
        return [_from_runtime(outputs[place], dtype) for place, dtype in prepared.results]

    def close(self) -> None:
        """See `Runtime.close`."""
        self._session.close()

    def _prepare(self, feeds: tuple[str, ...], fetches: tuple[str, ...]) -> PreparedRun:
        """Find the tensors of a request by name; the error is that of the first unknown one."""
        needed = [self._port(name) for name in fetches]
        names = self._fetch_lists.choose(feeds, fetches)
        return PreparedRun(
            [self._port(name) for name in feeds],
            names,
            [self._port(name) for name in names],
            [(names.index(name), port.dtype) for name, port in zip(fetches, needed, strict=True)],
        )

    def _options(self, feeds: Mapping[str, Tensor], context: RequestContext) -> Any:
        """Return the RunOptions of a run."""
        has_one_row = all(tensor.array.shape[:1] == (1,) for tensor in feeds.values())
        if self._is_small or (self._is_small_for_one_row and not self._active_runs and has_one_row):
            # There, TensorFlow would check a time limit only while an operation waits, and none does.
            return IN_CALLERS_THREAD
        options = tf.compat.v1.RunOptions()
        timeout_s = context.remaining_s()
        if timeout_s is not None:
            options.timeout_in_ms = max(1, round(timeout_s * 1000))
        return options

    def _run_arrays(
        self, prepared: PreparedRun, arrays: Sequence[np.ndarray], options: Any, context: RequestContext
    ) -> list[Any]:
        """Run the graph once; record the stages of the run if it is in the sample."""
        fed = {port.handle: array for port, array in zip(prepared.feeds, arrays, strict=True)}
        metadata = None
        if self._stage_interval and next(self._run_numbers) % self._stage_interval == 0:
            metadata = tf.compat.v1.RunMetadata()
            options = copy.deepcopy(options)
            options.trace_level = tf.compat.v1.RunOptions.SOFTWARE_TRACE
        started = time.perf_counter()
        self._active_runs.append(context)
        try:
            if self._interrupter:
                tensors = [port.tensor for port in prepared.fetches]
                outputs = self._interrupter.run(fed, tensors, options, context, metadata)
            else:
                outputs = self._session.run(fed, [port.handle for port in prepared.fetches], options, metadata)
        finally:
            self._active_runs.remove(context)
        if metadata is not None:
            self._record_stages(*graphs.stages_s(metadata, time.perf_counter() - started))
        return outputs

    def _cannot_feed(self, feeds: Mapping[str, Tensor]) -> StatusError:
        """Return the error of the first handle, which numpy cannot pass (tensorflow/core/common_runtime)."""
        index, name = next(
            (index, name) for index, name in enumerate(sorted(feeds)) if feeds[name].dtype.number in dtypes.HANDLES
        )
        array, dtype, _ = feeds[name]
        if dtype.name == "resource":
            handle = array.flat[0] if array.size else schema.ResourceHandleProto()
            return invalid_argument(
                f"Invalid resource type hash code: {handle.hash_code}(name: {handle.name} type: "
                f"{handle.maybe_type_name}). Perhaps a resource tensor was being provided as a feed? That is not "
                "currently allowed. Please file an issue at https://github.com/tensorflow/tensorflow/issues/new, "
                "ideally with a short code snippet that leads to this error message."
            )
        expected = self._port(name).dtype.name
        return invalid_argument(f"Expects arg[{index}] to be {expected} but {dtype.name} is provided")


def _session_config(content: bytes | None) -> Any:
    """Return the ConfigProto of a session, with the options that are faster for serving."""
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    if content is not None:
        config = tf.compat.v1.ConfigProto.FromString(content)
    config.intra_op_parallelism_threads = config.intra_op_parallelism_threads or _THREADS_WITHIN_OPERATION
    # Threads that have no work would look for some for a while, which takes 7 % of the CPU time of a single caller.
    config.experimental.disable_thread_spinning = True
    # The second round of optimisation and the MLIR one take half of the time of a signature's first run and made no
    # network faster (EfficientNet-Lite0, InceptionV3).
    rewriting = config.graph_options.rewrite_options
    if rewriting.meta_optimizer_iterations == rewriting.DEFAULT_NUM_ITERS:
        rewriting.meta_optimizer_iterations = rewriting.ONE
    rewriting.disable_tfg_optimizer = True
    return config


def _to_runtime(tensor: Tensor) -> np.ndarray:
    runtime_type = _RUNTIME_TYPES[tensor.dtype.number]
    return tensor.array if tensor.array.dtype == runtime_type else tensor.array.view(runtime_type)


def _from_runtime(value: Any, dtype: DType) -> Tensor:
    array = value if isinstance(value, np.ndarray) else as_array(value)
    return Tensor(array if array.dtype == dtype.numpy else array.view(dtype.numpy), dtype)


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


def _run_error(error: Any) -> StatusError:
    """Return the error of TensorFlow's runtime, without what Python's layers add, such as the places of operations."""
    cause = error
    while error := error.__context__:
        if isinstance(error, tf.errors.OpError):
            cause = error
    return StatusError(Code(cause.error_code), cause.message)


def _load_error(error: Exception, path: Path, tags: Sequence[str]) -> StatusError:
    if isinstance(error, tf.errors.OpError):
        return _run_error(error)
    if isinstance(error, RuntimeError) and "MetaGraphDef associated with tags" in str(error):
        return StatusError(
            Code.NOT_FOUND,
            f"Could not find meta graph def matching supplied tags: {{ {' '.join(tags)} }}. To inspect available "
            "tag-sets in the SavedModel, please use the SavedModel CLI: `saved_model_cli`",
        )
    if isinstance(error, (OSError, UnicodeDecodeError)):
        file, encoding = (
            ("saved_model.pb", "binary") if (path / "saved_model.pb").is_file() else ("saved_model.pbtxt", "text")
        )
        return StatusError(Code.DATA_LOSS, f"Can't parse {path / file} as {encoding} proto")
    return StatusError(Code.INVALID_ARGUMENT, str(error))
